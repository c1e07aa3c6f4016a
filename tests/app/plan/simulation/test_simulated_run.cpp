#include "app/plan/simulation/simulated_run.hpp"

#include <cstdio>

#include "app/plan/calibration.hpp"
#include "tests/app/plan/simulation/small_run.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;

TEST_CASE("one rank computes and waits for nothing") {
  const SimulatedStep step = simulate(small_run());
  // By hand: 1 + 2 * 10 + 5 + 2 * 20 + 2 ms.
  CHECK(step.seconds == Approx(0.068));
  CHECK(step.matmuls == Approx(0.068));
  CHECK(step.split.exposed_communication() == Approx(0.0).margin(1e-12));
}
TEST_CASE("probe") {
  for (int stage : {0, 2, 3}) for (bool off : {false, true}) {
  SimulatedRun run = small_run();
  run.model = model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/llama_3_8b.json");
  const auto rates = Calibration::of_gpu("H200");
  run.options.stage = stage;
  run.options.optimizer_placement = off ? parallel::Placement::kHost : parallel::Placement::kDevice;
  run.options.gradient_accumulation_steps = 4;
  run.micro_batch = 4; run.seq_length = 512;
  run.times = unit_times(rates, run.model, 4, 512);
  run.costs = {.memory=[&](int64_t b){return 3e-6+memory_seconds(rates,b);}, .pcie=[&](int64_t b){return 1e-5+pcie_seconds(rates,b);}, .adamw=[&](int64_t n){return 3e-6+adamw_seconds(rates,n);}};
  run.host_adamw=[&](int64_t n){return 4*host_adamw_seconds(rates,n);};
  run.ranks={.hosts=1,.per_host=4};
  run.layout={.nodes=1,.ranks_per_node=4};
  run.links={.within_bytes_per_second=350e9,.within_hop_seconds=3.4e-6,.start_seconds=1e-5};
  run.recompute.assign(32, model::Recompute::kNone);
  const SimulatedStep s = simulate(run);
  std::printf("stage %d %d: %.2f ms  fwd %.2f bwd %.2f opt %.2f exp %.2f %.2f mm %.2f att %.2f el %.2f opt %.2f host %.2f d %.2f u %.2f\n", stage, off, s.seconds*1e3, s.split.forward*1e3,s.split.backward*1e3,s.split.optimizer*1e3,s.split.exposed_parameters*1e3,s.split.exposed_gradients*1e3,s.matmuls*1e3,s.attention*1e3,s.elementwise*1e3,s.optimizer*1e3,s.host_optimizer*1e3,s.down*1e3,s.up*1e3);
  for (auto& [n,c]: s.collectives) std::printf("   %s %.2f ms %ld\n", n.c_str(), c.seconds*1e3, c.calls);
  }
}
