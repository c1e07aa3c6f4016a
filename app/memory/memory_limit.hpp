#pragma once

#include <cstdint>
#include <optional>

#include "app/memory/memory_plan.hpp"

namespace mpzero {

// Memory of a host before the run starts, in bytes.
struct MachineSizes {
  std::optional<int64_t> gpu;  // capacity of the smallest GPU; std::nullopt: no limit
  int64_t gpu_used = 0;        // GPU memory used by CUDA contexts and other processes
  int64_t host = 0;            // available host memory
  int ranks = 1;               // ranks per host
};

// Returns the memory limit per rank, which a dry run, a plan and the run use to choose a layout. On a GPU, the limit
// excludes the memory of CUDA, NCCL and other processes, and memory_margin().
MemoryNeed memory_limit(const MachineSizes& machine);

// Returns the memory of a CPU rank's process with `tensors` bytes of tensors at the peak. The allocator caches up to an
// eighth more (TensorMemory), and the program, libraries and small objects need kProcessAlone.
constexpr int64_t kProcessAlone = int64_t{384} << 20;
constexpr int64_t process_bytes(int64_t tensors) { return tensors + tensors / 8 + kProcessAlone; }
// Returns the largest number of tensor bytes for which process_bytes() is at most `process`.
constexpr int64_t tensors_within(int64_t process) { return (process - kProcessAlone) / 9 * 8; }

}  // namespace mpzero
