#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

namespace mpzero {

// A GPU's current memory, in bytes. Tensors occupy "allocated"; PyTorch's allocator has taken "reserved" from the GPU
// for them.
struct GpuMemory {
  int64_t total = 0;
  int64_t free = 0;  // for all processes
  int64_t reserved = 0;
  int64_t allocated = 0;

  // Used by everything but PyTorch's allocator: the CUDA context, NCCL, other processes.
  int64_t outside_allocator() const { return total - free - reserved; }
};

GpuMemory gpu_memory(const at::Device& gpu);

// Makes PyTorch's allocator grow its segments page by page (expandable segments) instead of using fixed blocks, unless
// the user has set PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF. Call it before the first tensor on a GPU.
void configure_gpu_allocator();

// A failed allocation of PyTorch's allocator.
struct RefusedAllocation {
  int64_t asked = 0;
  int64_t free = 0;  // on the GPU
  int64_t total = 0;
  int64_t allocated = 0;  // by tensors
};

// Records the last failed allocation on `gpu`, for the lifetime of the process.
class RefusedAllocations {
 public:
  explicit RefusedAllocations(const at::Device& gpu);
  const std::optional<RefusedAllocation>& last() const { return *last_; }

 private:
  std::shared_ptr<std::optional<RefusedAllocation>> last_;
};

// Whether an exception means that a GPU is out of memory: from PyTorch's allocator, CUDA, its libraries or NCCL.
bool is_out_of_gpu_memory(const std::exception& error);

}  // namespace mpzero
