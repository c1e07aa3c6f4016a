#include "app/memory/gpu_memory.hpp"

#include <ATen/Context.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

namespace mpzero {

GpuMemory gpu_memory(const at::Device& gpu) {
  const c10::cuda::CUDAGuard guard(gpu);
  at::globalContext().lazyInitDevice(at::kCUDA);
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(gpu.index());
  // Index 0 is the sum over small and large blocks.
  return {.total = static_cast<int64_t>(total),
          .free = static_cast<int64_t>(free),
          .reserved = stats.reserved_bytes[0].current,
          .allocated = stats.allocated_bytes[0].current};
}

// With fixed blocks, larger tensors cannot use the rest of a large block next to a smaller tensor. A step whose tensors
// differ in size (some layers recomputed, validation) reserves that much more. Segments that grow avoid this
// fragmentation. NCCL cannot map them into its peers, so it allocates its own memory for registered buffers
// (Communicator::buffer); unregistered tensors can use any memory.
void configure_gpu_allocator() {
  for (const char* variable : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    if (std::getenv(variable) != nullptr) return;
  }
  c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
}

RefusedAllocations::RefusedAllocations(const at::Device& gpu)
    : last_(std::make_shared<std::optional<RefusedAllocation>>()) {
  at::globalContext().lazyInitDevice(at::kCUDA);
  // The allocator never removes its observers, so this one shares ownership of what it writes to.
  c10::cuda::CUDACachingAllocator::attachOutOfMemoryObserver(
      [last = last_, index = gpu.index()](int64_t device, size_t asked, size_t total, size_t free) {
        if (device != index) return;
        const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index);
        *last = RefusedAllocation{.asked = static_cast<int64_t>(asked),
                                  .free = static_cast<int64_t>(free),
                                  .total = static_cast<int64_t>(total),
                                  .allocated = stats.allocated_bytes[0].current};
      });
}

bool is_out_of_gpu_memory(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  const std::string_view text = error.what();
  const auto contains = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  constexpr std::array kMessages{"CUDA out of memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED",
                                 "CUDNN_STATUS_ALLOC_FAILED"};
  return std::any_of(kMessages.begin(), kMessages.end(), contains) || (contains("nccl") && contains("out of memory"));
}

}  // namespace mpzero
