#include <ATen/ops/empty.h>

#include <any>

#include "app/plan/simulation/simulated_decoder.hpp"
#include "app/simulation/simulated_device.hpp"
#include "tests/app/plan/simulation/small_run.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;

TEST_CASE("a unit takes its time, and a layer's backward pass takes the time of its level") {
  const SimulatedRun run = small_run();
  const SimulatedDevice device(run.costs);
  const SimulatedDecoder decoder(run.model, run.times, /*slowdown=*/2);
  const at::Tensor x = at::empty({1, 8, 64}, at::TensorOptions().device(SimulatedDevice::device()));
  model::LayerActivations activations;
  decoder.run_layer({}, {x}, &activations, model::Recompute::kFull, {});
  CHECK(device.clock(0) == Approx(0.020));
  decoder.run_layer_backward({}, {x}, activations, {});
  CHECK(device.clock(0) == Approx(0.080));
  CHECK_THROWS_AS(decoder.run_layer_backward({}, {x}, activations, {}), std::bad_any_cast);
}

TEST_CASE("a forward pass that keeps fewer activations takes that level's time") {
  SimulatedRun run = small_run();
  run.times.layer_forward[model::Recompute::kSelective] = {.matmuls = 0.004};
  const SimulatedDevice device(run.costs);
  const SimulatedDecoder decoder(run.model, run.times);
  const at::Tensor x = at::empty({1, 8, 64}, at::TensorOptions().device(SimulatedDevice::device()));
  decoder.run_layer({}, {x}, nullptr, model::Recompute::kNone, {});
  decoder.run_layer({}, {x}, nullptr, model::Recompute::kSelective, {});
  CHECK(device.clock(0) == Approx(0.014));
}

TEST_CASE("a unit takes at least as long as the host needs to launch it") {
  SimulatedRun run = small_run();
  run.times.layer_forward[model::Recompute::kNone].launch_bound = 0.015;
  const SimulatedDevice device(run.costs);
  const SimulatedDecoder decoder(run.model, run.times);
  const at::Tensor x = at::empty({1, 8, 64}, at::TensorOptions().device(SimulatedDevice::device()));
  decoder.run_layer({}, {x}, nullptr, model::Recompute::kNone, {});
  decoder.run_layer({}, {x}, nullptr, model::Recompute::kNone, {});
  CHECK(device.clock(0) == Approx(0.030));
}
