#pragma once

#include <optional>
#include <string_view>

#include "base/environment.hpp"

namespace mpzero {

// GPUs that the cluster has assigned to this run on this host.
struct GivenGpus {
  int count = 0;           // 0 if no GPUs are assigned, or if unknown
  std::string_view by;     // "Slurm" or "Kubernetes"
  std::string_view where;  // environment variable that sets the count
};

// Returns the GPUs of the Slurm step or, outside a step, of the Slurm job. Without Slurm, returns the GPUs that a
// TrainJob requests on each node (MPZERO_GPUS, docs/eks.md).
GivenGpus given_gpus(const parallel::Environment& environment);

// Returns the number of entries in CUDA_VISIBLE_DEVICES; std::nullopt if the variable is unset.
std::optional<int> listed_gpus(const parallel::Environment& environment);

}  // namespace mpzero
