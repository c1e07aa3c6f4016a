#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "app/machine/device.hpp"
#include "app/memory/gpu_memory.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"

namespace mpzero {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

at::Tensor take(int64_t bytes) { return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA)); }

TEST_CASE("the memory of tensors is measured") {
  if (!has_gpu()) return;
  configure_gpu_allocator();
  const at::Device gpu(at::kCUDA, 0);
  const GpuMemory before = gpu_memory(gpu);
  const int64_t peak = peak_allocated_bytes(gpu);
  at::Tensor tensor = take(256 * kMebibyte);
  const GpuMemory with = gpu_memory(gpu);
  CHECK(with.total == before.total);
  CHECK(with.allocated - before.allocated == 256 * kMebibyte);
  CHECK(with.reserved >= with.allocated);
  CHECK(with.free <= before.free - 256 * kMebibyte);
  CHECK(with.free + with.reserved <= with.total);
  // The rest is not the allocator's: allocating a tensor hardly changes it.
  CHECK(std::abs(with.outside_allocator() - before.outside_allocator()) <= 64 * kMebibyte);
  tensor.reset();
  CHECK(gpu_memory(gpu).allocated == before.allocated);
  CHECK(peak_allocated_bytes(gpu) >= std::max(peak, before.allocated + 256 * kMebibyte));
  CHECK(peak_memory_bytes(gpu) >= peak_allocated_bytes(gpu));
}

TEST_CASE("a refused allocation is recorded") {
  if (!has_gpu()) return;
  const at::Device gpu(at::kCUDA, 0);
  const RefusedAllocations refused(gpu);
  CHECK_FALSE(refused.last().has_value());
  const at::Tensor held = take(64 * kMebibyte);
  const GpuMemory now = gpu_memory(gpu);
  bool thrown = false;
  try {
    take(now.total);
  } catch (const std::exception& error) {
    thrown = true;
    CHECK(is_out_of_gpu_memory(error));
  }
  CHECK(thrown);
  REQUIRE(refused.last().has_value());
  CHECK(refused.last()->asked >= now.total);
  CHECK(refused.last()->asked <= now.total + 64 * kMebibyte);
  CHECK(refused.last()->free <= now.total);
  CHECK(refused.last()->allocated >= 64 * kMebibyte);
}

}  // namespace
}  // namespace mpzero
