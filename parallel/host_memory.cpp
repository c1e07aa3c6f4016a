#include "parallel/host_memory.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace mpzero::parallel {
namespace {

constexpr double kGibibyte = 1 << 30;
constexpr int64_t kTouchStride = 4096;
constexpr int64_t kTouchGrain = 4096;

}  // namespace

at::Tensor host_tensor(int64_t numel, at::ScalarType dtype, bool pinned) {
  const auto options = at::TensorOptions().dtype(dtype);
  if (!pinned || numel == 0) return at::zeros({numel}, options);
  const size_t bytes = static_cast<size_t>(numel) * c10::elementSize(dtype);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw_failure("mmap of {:.2f} GiB of host memory failed: {}; use more ranks or a machine with more memory",
                  static_cast<double>(bytes) / kGibibyte, std::strerror(errno));
  }
  // Large pages where the system has them; touched by all threads, since registering faults pages in with one.
  madvise(memory, bytes, MADV_HUGEPAGE);
  const auto pages = static_cast<int64_t>((bytes + kTouchStride - 1) / kTouchStride);
  at::parallel_for(0, pages, kTouchGrain, [&](int64_t first, int64_t last) {
    for (int64_t page = first; page < last; ++page) static_cast<volatile char*>(memory)[page * kTouchStride] = 0;
  });
  const cudaError_t result = cudaHostRegister(memory, bytes, cudaHostRegisterDefault);
  if (result != cudaSuccess) {
    munmap(memory, bytes);
    throw_failure("cudaHostRegister of {:.2f} GiB failed: {}; use more ranks, or set pin_memory to false",
                  static_cast<double>(bytes) / kGibibyte, cudaGetErrorString(result));
  }
  const auto unmap = [bytes](void* start) {
    cudaHostUnregister(start);
    munmap(start, bytes);
  };
  // A CPU tensor over registered memory: CUDA recognises the addresses, so that copies of it are asynchronous.
  return at::from_blob(memory, {numel}, unmap, options);
}

}  // namespace mpzero::parallel
