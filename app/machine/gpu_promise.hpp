#pragma once

#include <optional>

#include "base/environment.hpp"

namespace mpzero {

// GPUs that Slurm has given to this step on this node, or to the job where this process belongs to no step; 0: none, or
// there is no Slurm.
int gpus_from_slurm(const parallel::Environment& environment);

// Entries of CUDA_VISIBLE_DEVICES; std::nullopt: it is not set.
std::optional<int> listed_gpus(const parallel::Environment& environment);

}  // namespace mpzero
