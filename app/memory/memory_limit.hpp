#pragma once

#include <cstdint>
#include <optional>

#include "app/memory/memory_plan.hpp"

namespace mpzero {

// The memory of a machine before a run uses it, in bytes.
struct MachineSizes {
  std::optional<int64_t> gpu;  // of the smallest GPU; std::nullopt: no GPU limits the run
  int64_t gpu_used = 0;        // of a GPU, by anything but this run's tensors: contexts, other processes
  int64_t host = 0;            // bytes that a process can still allocate
  int ranks = 1;               // on the machine
};

// Each rank's limit, by which a dry run, a plan and the run choose a layout. On a GPU, it leaves memory for CUDA and
// NCCL, for other processes, and the plan's margin.
MemoryNeed memory_limit(const MachineSizes& machine);

}  // namespace mpzero
