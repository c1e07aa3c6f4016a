// Linked with base/without_cuda in place of torch's CUDA libraries, in each build.

#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "tests/catch.hpp"

namespace mpzero {

TEST_CASE("without CUDA's libraries, no device is available") {
  CHECK(c10::cuda::device_count() == 0);
  c10::DeviceIndex device = 0;
  CHECK(c10::cuda::GetDevice(&device) == cudaErrorNoDevice);
  CHECK(c10::cuda::SetDevice(0) == cudaErrorNoDevice);
  CHECK(c10::cuda::MaybeSetDevice(0) == cudaErrorNoDevice);
  CHECK(c10::cuda::CUDACachingAllocator::allocator.load() == nullptr);
  CHECK_NOTHROW([] { C10_CUDA_CHECK(cudaSuccess); }());
}

TEST_CASE("operations that need a device report that this build has no GPU kernels") {
  const auto reports = [](auto call) { CHECK_THROWS_WITH(call(), Catch::Contains("has no GPU kernels")); };
  reports([] { c10::cuda::set_device(0); });
  reports([] { c10::cuda::current_device(); });
  reports([] { c10::cuda::ExchangeDevice(0); });
  reports([] { c10::cuda::device_synchronize(); });
  reports([] { c10::cuda::getStreamFromPool(true); });
  reports([] { c10::cuda::getStreamFromPool(0); });
  reports([] { c10::cuda::getCurrentCUDAStream(); });
  reports([] { c10::cuda::getDefaultCUDAStream(); });
  reports([] { C10_CUDA_CHECK(cudaErrorNoDevice); });
  reports([] { at::cuda::sleep(1); });
  const c10::cuda::CUDAStream stream(c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCUDA, 0)));
  reports([&] { stream.query(); });
  reports([&] { stream.synchronize(); });
  reports([&] { stream.stream(); });
  reports([&] { c10::cuda::setCurrentCUDAStream(stream); });
}

}  // namespace mpzero
