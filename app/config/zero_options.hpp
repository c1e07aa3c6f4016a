#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/config/run_config.hpp"
#include "model/architecture/config.hpp"
#include "parallel/zero/levels.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// A run's configuration in the engine's terms.
parallel::ZeroOptions zero_options(const RunConfig& config, at::Device device);

// Where a run's ranks are.
struct RankPlacement {
  int world_size = 1;
  std::optional<int> per_host;    // if each host has as many consecutive ranks
  std::vector<int> host_of = {};  // by rank, if not

  bool one_nvlink_domain = false;  // of the GPUs of all hosts

  int hosts() const;
  int host(int rank) const { return per_host ? rank / *per_host : host_of[static_cast<size_t>(rank)]; }
};

// `host_of`: of each rank; other numbers for other hosts.
RankPlacement placement_of(const std::vector<int>& host_of);

// Why hosts cannot be nodes, and what to do; empty where each host has as many consecutive ranks.
std::string describe_unevenness(const RankPlacement& ranks);

// Whether a node of several has ranks of several hosts.
bool has_nodes_across_hosts(const parallel::ParallelLayout& layout, const RankPlacement& ranks);

// The nodes between which gradients and parameters travel once per step: the configuration's, or else a node a host.
// Throws UserError if the ranks do not fill them.
parallel::ParallelLayout parallel_layout(const RunConfig& config, const RankPlacement& ranks);
// What crosses between nodes in fewer bits, as "gradients in 8 bits and parameters in 8 bits"; empty: nothing.
std::string describe_compression(const RunConfig& config);
// What follows "ZeRO-3" in a line about the run: "" with one level.
std::string describe_levels(const parallel::ParallelLayout& layout);

// Refuses names that no parameter has. One of several may: norm,bias is right for models without biases, too.
void check_no_decay(const RunConfig& config, const model::ModelConfig& model, std::vector<std::string>& warnings);

// model::flops_per_token of the run: gradients of frozen weights are not computed.
double training_flops_per_token(const RunConfig& config, const model::ModelConfig& model, int64_t seq_length);

// Of a run whose base is in 8 or 4 bits. Throws UserError where that is random, or would be compressed once more.
// `begins`: no checkpoint refers to a base.
void check_coded_base(const RunConfig& config, bool begins);

// Throws UserError unless --freeze_parameters names parameters of the model, leaves some to train, and freezes all or
// none of the weights that the model multiplies as one matrix. `source`: of the model's type, for messages.
void check_frozen_parameters(const RunConfig& config, const model::ModelConfig& model, const std::string& source);

}  // namespace mpzero
