#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>

#include <random>
#include <vector>

#include "app/simulation/simulated_backend.hpp"
#include "app/train/step/host_activations.hpp"
#include "base/error.hpp"
#include "tests/app/plan/simulation/small_run.hpp"
#include "tests/app/simulation/memory_watch.hpp"
#include "tests/catch.hpp"
#include "tests/model/compare.hpp"

namespace mpzero {
namespace {

TEST_CASE("activations of random sizes are restored with their bits and strides, last first, in every micro-batch") {
  std::mt19937 random(7);
  const auto up_to = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(random); };
  for (int run = 0; run < 60; ++run) {
    const auto layers = static_cast<size_t>(up_to(9));
    const int64_t numel = 4 * up_to(500);
    const at::ScalarType type = run % 2 == 0 ? at::kBFloat16 : at::kFloat;
    const int64_t bytes = numel * static_cast<int64_t>(c10::elementSize(type));
    HostActivations activations(at::kCPU, layers, bytes, /*pinned=*/true);
    CHECK(activations.bytes() == static_cast<int64_t>(layers > 2 ? layers - 2 : 0) * bytes);
    for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
      std::vector<at::Tensor> expected;
      // Forward passes that end early, and turns between the two, as no step has them.
      for (int turn = 0; turn < 4; ++turn) {
        while (expected.size() < layers && up_to(8) > 1) {
          at::Tensor x = at::randn({2, up_to(numel / 4), 2}, at::kFloat).to(type);
          if (up_to(2) > 1) x = x.transpose(1, 2);
          expected.push_back(x.clone());
          activations.put(x);
        }
        while (!expected.empty() && (turn == 3 || up_to(3) > 1)) {
          const at::Tensor x = activations.take();
          REQUIRE(x.sizes() == expected.back().sizes());
          REQUIRE(x.strides() == expected.back().strides());
          REQUIRE(model::bitwise_equal(x, expected.back()));
          expected.pop_back();
        }
      }
    }
  }
}

TEST_CASE("at most two activations are on the device") {
  constexpr int64_t kBytes = 1000 * sizeof(float);
  const plan::OneThread one;
  plan::MemoryWatch watch;
  HostActivations activations(at::kCPU, 6, kBytes, /*pinned=*/true);
  const int64_t before = watch.now();
  for (int input = 0; input < 6; ++input) {
    activations.put(at::empty({1000}, at::kFloat));
    CHECK(watch.now() - before == std::min(input + 1, 2) * kBytes);
  }
  for (int input = 6; input-- > 0;) {
    const at::Tensor x = activations.take();
    CHECK(watch.now() - before == std::min(input + 1, 2) * kBytes);
  }
  CHECK(watch.now() == before);
}

TEST_CASE("tensors that do not match the micro-batch are refused") {
  HostActivations activations(at::kCPU, 3, 32, /*pinned=*/true);
  CHECK_THROWS_AS(activations.take(), Failure);
  CHECK_THROWS_AS(activations.put(at::empty({9}, at::kFloat)), Failure);
  HostActivations others(at::kCPU, 3, 32, /*pinned=*/true);
  CHECK_THROWS_AS(others.put(at::empty({4, 2}, at::kFloat).select(1, 0)), Failure);
  for (int input = 0; input < 3; ++input) others.put(at::empty({8}, at::kFloat));
  CHECK_THROWS_AS(others.put(at::empty({8}, at::kFloat)), Failure);
}

// Five layers of 10 s forward and 30 s backward. Returns when the last one ends.
double seconds_with_copies_of(double copy) {
  plan::SimulatedDevice::Costs costs = plan::small_run().costs;
  costs.down = costs.up = [copy](int64_t) { return copy; };
  plan::SimulatedDevice device(costs);
  const auto on_device = at::TensorOptions().device(plan::SimulatedDevice::device());
  HostActivations activations(plan::SimulatedDevice::device(), 5, 400, /*pinned=*/true);
  CHECK(activations.bytes() == 3 * 100 * 4);
  const int64_t before = plan::simulated_memory().now();
  plan::simulated_memory().take_peak();
  for (int layer = 0; layer < 5; ++layer) {
    activations.put(at::empty({100}, on_device));
    device.queue(plan::Work::kMatmuls, "forward", 10);
  }
  for (int layer = 0; layer < 5; ++layer) {
    const at::Tensor x = activations.take();
    device.queue(plan::Work::kMatmuls, "backward", 30);
  }
  CHECK(plan::simulated_memory().take_peak() - before == 3 * 512);  // two, and the next one
  CHECK(device.host_now() == 0);
  return device.clock(0);
}

TEST_CASE("copies overlap with the layers, one layer ahead") {
  // Short ones take no time.
  CHECK(seconds_with_copies_of(1) == 5 * 10 + 5 * 30);
  CHECK(seconds_with_copies_of(10) == 5 * 10 + 5 * 30);
  // The inputs of layers 0 to 2 reach the host at 20, 40 and 60, and layers 2 to 4 begin then: the memory of the input
  // two before them is free.
  CHECK(seconds_with_copies_of(20) == 60 + 10 + 5 * 30);
  // In the backward, too, those of layers 2 to 0 arrive 40 s after the layers before them begin.
  CHECK(seconds_with_copies_of(40) == 130 + 30 + 3 * 40 + 30);
}

}  // namespace
}  // namespace mpzero
