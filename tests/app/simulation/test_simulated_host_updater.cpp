#include <ATen/ops/empty.h>

#include <memory>

#include "app/simulation/simulated_host_updater.hpp"
#include "tests/app/plan/simulation/small_run.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;

namespace {

// Two units of 64 elements, 10 s each on the cores and 1 s for each copy, in pieces of 64.
struct Fixture {
  explicit Fixture(int64_t spares, bool keeps_gradients = false) {
    for (int u = 0; u < 2; ++u) {
      shards.emplace_back(64, parallel::OptimizerShard::Options{.placement = parallel::Placement::kHost,
                                                                .device = SimulatedDevice::device()});
    }
    parallel::HostUpdater::Options options;
    options.memory.piece_numel = 64;
    options.memory.pieces = 8;
    options.memory.keeps_gradients = keeps_gradients;
    if (spares > 0) options.memory.spares[64] = spares;
    host = std::make_unique<SimulatedHostUpdater>(std::vector<parallel::OptimizerShard*>{&shards[0], &shards[1]},
                                                  options, [](int64_t) { return 10.0; });
  }
  void take(size_t unit) {
    const at::Tensor tensor = at::empty({64}, at::TensorOptions().device(SimulatedDevice::device()));
    host->take_gradient(unit, tensor, tensor);
  }

  SimulatedDevice device{[] {
    SimulatedDevice::Costs costs = small_run().costs;
    costs.down = costs.up = [](int64_t) { return 1.0; };
    return costs;
  }()};
  std::vector<parallel::OptimizerShard> shards;
  std::unique_ptr<SimulatedHostUpdater> host;
};

}  // namespace

TEST_CASE("updates run one after another on the cores, and copies overlap with them") {
  Fixture f(0);
  f.take(1);
  f.take(0);
  f.host->finish({});
  CHECK_FALSE(f.host->ready(0));
  f.host->wait(0);
  // Down, update, up.
  CHECK(f.device.host_now() == 11);
  CHECK(f.device.clock(0) == 12);
  f.host->wait(1);
  CHECK(f.device.host_now() == 21);
  CHECK(f.device.clock(0) == 22);
  CHECK(f.host->units_ahead() == 0);
}

TEST_CASE("released gradients are copied as soon as they are passed, and their memory is then free") {
  Fixture f(0, /*keeps_gradients=*/true);
  CHECK(f.host->memory_use().host_gradients == 2 * 64 * 4);
  f.take(1);
  f.take(0);
  f.host->wait_for_copy(1);
  CHECK(f.device.clock(0) == 1);
  f.host->wait_for_copy(0);
  CHECK(f.device.clock(0) == 2);
  f.device.host_waits_until(5);
  f.host->finish({});
  f.host->wait(0);
  CHECK(f.device.host_now() == 15);
  f.host->wait(1);
  CHECK(f.device.host_now() == 25);
}

TEST_CASE("expected updates run before the norm is known, as far as spare states permit") {
  Fixture f(1);
  f.host->expect({});
  f.take(1);
  f.device.host_waits_until(5);
  f.take(0);
  f.device.host_waits_until(30);
  f.host->finish({});
  CHECK(f.host->units_ahead() == 1);
  CHECK(f.host->ready(1));  // since 11
  f.host->wait(0);
  CHECK(f.device.host_now() == 41);
}
