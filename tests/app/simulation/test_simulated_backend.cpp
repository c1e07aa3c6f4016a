#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "app/simulation/simulated_backend.hpp"
#include "app/simulation/simulated_device.hpp"
#include "tests/app/plan/simulation/small_run.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;

namespace {

SimulatedDevice::Costs a_second_a_byte() {
  SimulatedDevice::Costs costs = small_run().costs;
  costs.memory = [](int64_t bytes) { return static_cast<double>(bytes); };
  costs.down = [](int64_t bytes) { return 10.0 * static_cast<double>(bytes); };
  costs.up = [](int64_t bytes) { return 100.0 * static_cast<double>(bytes); };
  return costs;
}

const at::TensorOptions kOnDevice = at::TensorOptions().device(SimulatedDevice::device());

}  // namespace

TEST_CASE("tensors have ATen's shapes and no memory") {
  const SimulatedDevice device(small_run().costs);
  const at::Tensor huge = at::zeros({int64_t{1} << 40, 4}, kOnDevice);
  CHECK(huge.nbytes() == size_t{16} << 40);
  CHECK(huge.narrow(0, 3, 5).view({10, 2}).sizes() == at::IntArrayRef({10, 2}));
  CHECK(huge.sum().dim() == 0);
  CHECK(at::cat({huge, huge}).size(0) == int64_t{1} << 41);
  CHECK(at::stack({huge.sum(), huge.sum()}).sizes() == at::IntArrayRef({2}));
  CHECK(huge.to(at::kDouble).scalar_type() == at::kDouble);
}

TEST_CASE("an operator takes the time to read and write its tensors") {
  const SimulatedDevice device(a_second_a_byte());
  at::Tensor tensor = at::empty({4}, kOnDevice);
  const double before = device.clock(0);
  tensor.zero_();
  CHECK(device.clock(0) - before == 16);
  // Two are read, one is written.
  tensor.add_(tensor);
  CHECK(device.clock(0) - before == 64);
}

TEST_CASE("copies use the PCIe link in their direction") {
  const SimulatedDevice device(a_second_a_byte());
  const at::Tensor here = at::zeros({2}), there = at::empty({2}, kOnDevice);
  there.copy_(here, /*non_blocking=*/true);
  CHECK(device.clock(0) == 800);
  CHECK(device.host_now() == 0);
  here.copy_(there);
  CHECK(device.host_now() == 880);
  there.copy_(there.clone(), /*non_blocking=*/true);
  CHECK(device.clock(0) > 880);
}
