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
  // Index 0 is StatType::AGGREGATE.
  return {.total = static_cast<int64_t>(total),
          .free = static_cast<int64_t>(free),
          .reserved = stats.reserved_bytes[0].current,
          .allocated = stats.allocated_bytes[0].current};
}

// Expandable segments avoid fragmentation if the tensors of a step differ in size (recomputation in some layers,
// validation). NCCL cannot map expandable segments to peers, so registered buffers (Communicator::buffer) are allocated
// by NCCL.
void configure_gpu_allocator() {
  for (const char* variable : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    if (std::getenv(variable) != nullptr) return;
  }
  c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
}

RefusedAllocations::RefusedAllocations(const at::Device& gpu)
    : last_(std::make_shared<std::optional<RefusedAllocation>>()) {
  at::globalContext().lazyInitDevice(at::kCUDA);
  // The allocator never removes observers, so the observer shares ownership of `last_`.
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
