#pragma once

#include <optional>
#include <string_view>

#include "base/environment.hpp"

namespace mpzero {

// GPUs that the cluster has given to this run on this node.
struct GivenGpus {
  int count = 0;           // 0: none, or no cluster is known
  std::string_view by;     // "Slurm" or "Kubernetes"
  std::string_view where;  // the variable that says so
};

// Those of Slurm's step, or of its job where this process belongs to no step; else those that a TrainJob asks for on
// each node (MPZERO_GPUS, docs/eks.md).
GivenGpus given_gpus(const parallel::Environment& environment);

// Entries of CUDA_VISIBLE_DEVICES; std::nullopt: it is not set.
std::optional<int> listed_gpus(const parallel::Environment& environment);

}  // namespace mpzero
