#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

namespace mpzero {

// Current memory of a GPU, in bytes. `reserved` and `allocated` are statistics of PyTorch's CUDA caching allocator.
struct GpuMemory {
  int64_t total = 0;
  int64_t free = 0;  // reported by cudaMemGetInfo
  int64_t reserved = 0;
  int64_t allocated = 0;

  // Returns the memory used outside of PyTorch's allocator: the CUDA context, NCCL and other processes.
  int64_t outside_allocator() const { return total - free - reserved; }
};

GpuMemory gpu_memory(const at::Device& gpu);

// Enables expandable segments in PyTorch's CUDA caching allocator, unless PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF
// is set. Must be called before the first allocation on a GPU.
void configure_gpu_allocator();

// A failed allocation in PyTorch's CUDA caching allocator, in bytes.
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

// Returns true if an exception of PyTorch, CUDA, cuBLAS, cuDNN or NCCL means that a GPU is out of memory.
bool is_out_of_gpu_memory(const std::exception& error);

}  // namespace mpzero
