#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/config/run_config.hpp"
#include "model/architecture/config.hpp"
#include "parallel/zero/levels.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// Converts a run's configuration to the engine's options.
parallel::ZeroOptions zero_options(const RunConfig& config, at::Device device);

// The placement of a run's ranks on hosts.
struct RankPlacement {
  int world_size = 1;
  std::optional<int> per_host;    // if each host has the same number of consecutive ranks
  std::vector<int> host_of = {};  // by rank, otherwise

  bool one_nvlink_domain = false;  // the GPUs of all hosts share one

  int hosts() const;
  int host(int rank) const { return per_host ? rank / *per_host : host_of[static_cast<size_t>(rank)]; }
};

// `host_of`: a number per rank, equal for ranks on the same host.
RankPlacement placement_of(const std::vector<int>& host_of);

// Why hosts cannot be shard groups, and the remedy; empty if each host has the same number of consecutive ranks.
std::string describe_unevenness(const RankPlacement& ranks);

// Whether there are several shard groups, one of which spans hosts.
bool has_nodes_across_hosts(const parallel::ParallelLayout& layout, const RankPlacement& ranks);

// The shard groups, between which gradients and parameters travel once per step: as configured, else one per host.
// Throws UserError if their size does not divide the number of ranks.
parallel::ParallelLayout parallel_layout(const RunConfig& config, const RankPlacement& ranks);
// Quantization between shard groups, e.g. "gradients in 8 bits and parameters in 8 bits"; empty: none.
std::string describe_compression(const RunConfig& config);
// The text after "ZeRO-3" in a line about the run: shard groups and sequence ranks, if any.
std::string describe_levels(const parallel::ParallelLayout& layout);

// Refuses --no_decay if no name matches a parameter; warns if some do not: norm,bias is also valid without biases.
void check_no_decay(const RunConfig& config, const model::ModelConfig& model, std::vector<std::string>& warnings);

// model::flops_per_token of the run, without gradients of frozen weights.
double training_flops_per_token(const RunConfig& config, const model::ModelConfig& model, int64_t seq_length);

// For a run with a quantized base (8 or 4 bits): throws UserError if the base is random or would be quantized again.
// `begins`: no checkpoint refers to a base.
void check_coded_base(const RunConfig& config, bool begins);

// Throws UserError unless --freeze_parameters matches parameters of the model, leaves some trainable, and freezes all
// or none of the weights that form one matrix product. `source`: the source of model_type, for messages.
void check_frozen_parameters(const RunConfig& config, const model::ModelConfig& model, const std::string& source);

}  // namespace mpzero
