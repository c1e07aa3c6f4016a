#pragma once

#include <optional>
#include <string_view>

#include "base/environment.hpp"

namespace mpzero {

// GPUs that the cluster has assigned to this run on this host.
struct GivenGpus {
  int count = 0;           // 0: none, or no known cluster
  std::string_view by;     // "Slurm" or "Kubernetes"
  std::string_view where;  // environment variable that sets the count
};

// The GPUs of Slurm's step, or of its job if this process is in no step; else those that a TrainJob requests on each
// node (MPZERO_GPUS, docs/eks.md).
GivenGpus given_gpus(const parallel::Environment& environment);

// Number of entries of CUDA_VISIBLE_DEVICES; std::nullopt: unset.
std::optional<int> listed_gpus(const parallel::Environment& environment);

}  // namespace mpzero
