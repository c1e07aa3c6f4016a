#pragma once

#include <cstdint>
#include <optional>

#include "app/memory/memory_plan.hpp"
#include "parallel/host/memory_use.hpp"

namespace mpzero {

// Memory of a CUDA context without NCCL: the midpoint of 0.45 to 0.86 GiB, the range consistent with a run of
// Qwen2.5-7B on one H200 (133.4 GiB in bench/RESULTS.md). kUsualContext includes NCCL.
constexpr int64_t kContextAlone = int64_t{655} << 20;

// Memory of a host before the run starts, in bytes.
struct MachineSizes {
  std::optional<int64_t> gpu = {};  // capacity of the smallest GPU; std::nullopt: the run trains on CPUs
  int64_t gpu_used = 0;             // GPU memory used by CUDA contexts and other processes
  int64_t host = 0;                 // available host memory; 0: unknown
  int ranks = 1;                    // ranks per host
  int64_t context = kUsualContext;  // of CUDA and NCCL
};

// Returns the memory that a rank may use. On a GPU, excludes the memory of CUDA, NCCL and other processes.
MemoryRoom memory_room(const MachineSizes& machine);

// Returns the memory of a CPU rank's process with `tensors` bytes of tensors at the peak. The allocator caches up to an
// eighth more (TensorMemory), and the program, libraries and small objects need kProcessAlone.
constexpr int64_t kProcessAlone = int64_t{384} << 20;
constexpr int64_t process_bytes(int64_t tensors) { return tensors + tensors / 8 + kProcessAlone; }
// Returns the largest number of tensor bytes for which process_bytes() is at most `process`.
constexpr int64_t tensors_within(int64_t process) { return (process - kProcessAlone) / 9 * 8; }

// Returns the smallest fraction of optimizer states on the host, rounded up to four digits, for which the remaining
// states fit in `device_bytes` bytes of free GPU memory. `use`: memory use of a rank with all optimizer states on the
// host.
double smallest_host_ratio(const parallel::MemoryUse& use, int64_t device_bytes);

}  // namespace mpzero
