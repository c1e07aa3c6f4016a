#include "app/memory/state_placement.hpp"
#include "tests/app/tiny_training.hpp"
#include "tests/catch.hpp"

namespace mpzero {

// What a GPU has room for is in tests/e2e/test_memory.py and tests/gpu.
TEST_CASE("on the CPU, states are placed as configured for any ratio, without recomputation") {
  const TinyTraining run;
  RunSetup setup = run.set_up({});
  setup.config.zero.offload_ratio_automatic = true;
  TinyEngine tiny(setup);
  RunMemory memory(setup, at::kCPU, parallel::mpi());
  StatePlacement placement(setup.config, at::kCPU, tiny.engine, memory, parallel::mpi());
  CHECK_FALSE(placement.leaves_ratio_open());
  const int64_t states = tiny.engine.memory_use().optimizer_states;
  const std::vector<model::Recompute> kept(2, model::Recompute::kNone);
  CHECK((placement.plan() == kept));
  CHECK(tiny.engine.memory_use().optimizer_states == states);
}

}  // namespace mpzero
