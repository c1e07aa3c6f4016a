#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/config/run_config.hpp"
#include "model/architecture/config.hpp"
#include "parallel/zero/levels.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

parallel::ZeroOptions zero_options(const RunConfig& config, at::Device device);

// Returns the keys, other than "zero_optimization", that reproduce the current settings in a new ds_config.json; empty
// if the run already has a ds_config.json.
std::string new_file_keys(const RunConfig& config);
// Returns a ds_config.json. `keys`: see new_file_keys(). `zero`: keys of "zero_optimization".
std::string minimal_ds_config(const std::string& keys, const std::vector<std::string>& zero);

// Returns advice to keep some of the optimizer states on the GPUs, for messages.
std::string ratio_remedy(const RunConfig& config);

struct RankPlacement {
  int world_size = 1;
  std::optional<int> per_host;    // ranks per host; unset if counts differ or a host's ranks are not consecutive
  std::vector<int> host_of = {};  // host of each rank if `per_host` is unset

  bool one_nvlink_domain = false;  // the GPUs of all hosts are in one NVLink domain

  int hosts() const;
  int host(int rank) const { return per_host ? rank / *per_host : host_of[static_cast<size_t>(rank)]; }
};

// `host_of`: host number of each rank.
RankPlacement placement_of(const std::vector<int>& host_of);

// Returns the reason why hosts cannot be shard groups, with a remedy. Returns an empty string if every host has the
// same number of consecutive ranks.
std::string describe_unevenness(const RankPlacement& ranks);

// Returns true if there are several shard groups and at least one of them spans several hosts.
bool has_nodes_across_hosts(const parallel::ParallelLayout& layout, const RankPlacement& ranks);

// Returns the configured layout of shard groups; the default is one group per host. Throws UserError if the group size
// does not divide the number of ranks.
parallel::ParallelLayout parallel_layout(const RunConfig& config, const RankPlacement& ranks);
// Describes quantization between shard groups: "8-bit gradients and 8-bit parameters"; empty if communication
// is not quantized.
std::string describe_compression(const RunConfig& config);
// Describes shard groups and sequence parallelism, if any, as text to append to "ZeRO-3".
std::string describe_levels(const parallel::ParallelLayout& layout);

// Throws UserError if no name in --no_decay matches a parameter. If only some names match, warns instead, because
// `norm,bias` is also valid for models without biases.
void check_no_decay(const RunConfig& config, const model::ModelConfig& model, std::vector<std::string>& warnings);

// Returns model::flops_per_token() minus the FLOPs for weight gradients of frozen parameters.
double training_flops_per_token(const RunConfig& config, const model::ModelConfig& model, int64_t seq_length);

// Throws UserError if the base model of a run with --load_in_8bit or --load_in_4bit has random weights, or if
// zero_quantized_weights would quantize its weights again. `begins`: true if the run does not resume from a checkpoint.
void check_coded_base(const RunConfig& config, bool begins);

// Throws UserError unless --freeze_parameters matches at least one parameter, leaves at least one trainable, and
// freezes all or none of the weights of each fused matmul. `source`: origin of model_type, for messages.
void check_frozen_parameters(const RunConfig& config, const model::ModelConfig& model, const std::string& source);

}  // namespace mpzero
