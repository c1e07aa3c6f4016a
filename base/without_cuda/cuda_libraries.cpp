// Stubs for builds without GPU kernels, which do not link torch's CUDA libraries. Inline code in torch's headers calls
// these functions. The device count is 0. Functions that need a device throw an error about the missing GPU kernels.

#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "base/gpu_kernels.hpp"

namespace c10::cuda {

using mpzero::throw_no_gpu_kernels;

DeviceIndex device_count() noexcept { return 0; }
DeviceIndex current_device() { throw_no_gpu_kernels(); }
void set_device(DeviceIndex, bool) { throw_no_gpu_kernels(); }
void device_synchronize() { throw_no_gpu_kernels(); }
cudaError_t GetDevice(DeviceIndex*) { return cudaErrorNoDevice; }
cudaError_t SetDevice(DeviceIndex, bool) { return cudaErrorNoDevice; }
cudaError_t MaybeSetDevice(DeviceIndex) { return cudaErrorNoDevice; }
DeviceIndex ExchangeDevice(DeviceIndex) { throw_no_gpu_kernels(); }

CUDAStream getStreamFromPool(bool, DeviceIndex) { throw_no_gpu_kernels(); }
CUDAStream getStreamFromPool(int, DeviceIndex) { throw_no_gpu_kernels(); }
CUDAStream getCurrentCUDAStream(DeviceIndex) { throw_no_gpu_kernels(); }
CUDAStream getDefaultCUDAStream(DeviceIndex) { throw_no_gpu_kernels(); }
void setCurrentCUDAStream(CUDAStream) { throw_no_gpu_kernels(); }
cudaStream_t CUDAStream::stream() const { throw_no_gpu_kernels(); }
bool CUDAStream::query() const { throw_no_gpu_kernels(); }
void CUDAStream::synchronize() const { throw_no_gpu_kernels(); }

void c10_cuda_check_implementation(int32_t error, const char*, const char*, uint32_t, bool) {
  if (error != cudaSuccess) throw_no_gpu_kernels();
}

namespace CUDACachingAllocator {

std::atomic<CUDAAllocator*> allocator;  // null because all tensors are in host memory

}  // namespace CUDACachingAllocator

}  // namespace c10::cuda

void at::cuda::sleep(int64_t) { mpzero::throw_no_gpu_kernels(); }
