#include <atomic>

#include "tests/parallel/host_optimizer_bench.hpp"

namespace mpzero::parallel {
namespace {

// Lengths that are and are not multiples of pieces and blocks.
std::vector<int64_t> lengths() { return {3'000'064, 64, (int64_t{1} << 20) + kHostBlock, 128, 64}; }

// As the program plans the memory.
struct PlannedBench : Bench {
  explicit PlannedBench(int threads, int64_t spare_bytes = int64_t{1} << 40,
                        const std::vector<int64_t>& sizes = lengths(), at::ScalarType moments = at::kFloat)
      : Bench(threads, sizes, plan_host_memory({.lengths = sizes, .moment_dtype = moments}, spare_bytes)) {}
};

}  // namespace

TEST_CASE("a team runs each block once and tasks in order") {
  for (const int threads : {1, 2, 7}) {
    ThreadTeam team(threads);
    CHECK(team.size() == threads);
    std::vector<std::atomic<int>> counts(1000);
    std::atomic<int64_t> late{0};
    const auto first = team.start(1000, [&](int64_t block) { ++counts[static_cast<size_t>(block)]; });
    const auto second = team.start(3, [&](int64_t) { late += std::count(counts.begin(), counts.end(), 0); });
    second->wait();
    first->wait();
    CHECK(std::all_of(counts.begin(), counts.end(), [](const std::atomic<int>& count) { return count == 1; }));
    // All of the first task's blocks have been started before one of the second is.
    CHECK(late <= 3 * threads);
    team.run(0, [](int64_t) { FAIL(); });
  }
}

TEST_CASE("wait() throws an exception of a block") {
  ThreadTeam team(2);
  const auto task = team.start(10, [](int64_t block) {
    if (block == 7) throw std::runtime_error("block 7");
  });
  CHECK_THROWS_WITH(task->wait(), "block 7");
  team.run(10, [](int64_t) {});
}

TEST_CASE("a team completes its tasks before it is destroyed") {
  std::atomic<int> done{0};
  {
    ThreadTeam team(3);
    team.start(50, [&](int64_t) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      ++done;
    });
  }
  CHECK(done == 50);
}

TEST_CASE("the host optimizer's updates are bitwise equal to a single thread's") {
  for (const at::ScalarType moments : {at::kFloat, at::kBFloat16}) {
    for (const int threads : {1, 2, 5}) {
      PlannedBench bench(threads, int64_t{1} << 40, lengths(), moments);
      bench.take_gradients();
      bench.finish(some_update(0.25));
      bench.check();
    }
  }
}

TEST_CASE("an update before the norm is known, with a right expectation, has the same bits") {
  PlannedBench bench(3, int64_t{1} << 40, lengths(), GENERATE(at::kFloat, at::kBFloat16));
  bench.optimizer->expect(some_update());
  bench.take_gradients();
  // The parameters change before finish() is called; the states do not.
  for (size_t u = 0; u < bench.shards.size(); ++u) {
    CHECK(eventually([&] { return bench.optimizer->ahead(u) == HostOptimizer::Ahead::kComputed; }));
    CHECK(bench.parameters[u].count_nonzero().item<int64_t>() > 0);
    CHECK(same_bits(bench.shards[u]->states(), bench.expected[u]));
  }
  bench.finish(some_update());
  bench.check();
}

TEST_CASE("at most as many units as there are spare states are updated before the norm is known") {
  // Spare states for one of two units of the same length; the later one's gradient comes first.
  PlannedBench bench(2, 1'000'000 * 12, {1'000'000, 1'000'000});
  CHECK(bench.optimizer->memory_use().host_spares == 12'000'000);
  bench.optimizer->expect(some_update());
  bench.take_gradients();
  CHECK(eventually([&] { return bench.optimizer->ahead(1) == HostOptimizer::Ahead::kComputed; }));
  CHECK(bench.parameters[0].count_nonzero().item<int64_t>() == 0);
  bench.finish(some_update());
  bench.check();
}

TEST_CASE("a unit can be waited for while later units are updated") {
  PlannedBench bench(1, 0, std::vector<int64_t>(12, 2 * kHostBlock));
  // The last one waits, because its states are held.
  StateHold hold = bench.optimizer->hold(11);
  bench.take_gradients();
  bench.finish(some_update());
  bench.optimizer->wait(0);
  CHECK(same_bits(bench.parameters[0], bench.expected_parameters[0]));
  CHECK(bench.optimizer->ready(0));
  CHECK_FALSE(bench.optimizer->ready(11));
  hold.release();
  bench.optimizer->wait_for_all();
  CHECK(bench.optimizer->ready(11));
  bench.check();
}

TEST_CASE("an optimizer can be destroyed with unfinished work") {
  PlannedBench bench(2);
  bench.optimizer->expect(some_update());
  bench.take_gradients();
  bench.optimizer->finish(some_update(0.5));
  bench.optimizer.reset();
}

TEST_CASE("after a failure of the optimizer's thread, every later wait throws") {
  PlannedBench bench(2, 0);
  // A gradient of a type that AdamW does not support has no memory to read: its access fails in the other thread.
  for (size_t u = bench.shards.size(); u-- > 0;) bench.optimizer->take_gradient(u, at::Tensor(), bench.parameters[u]);
  bench.optimizer->finish(some_update());
  CHECK_THROWS(bench.optimizer->wait_for_all());
  CHECK_THROWS(bench.optimizer->wait(0));
  CHECK_THROWS(bench.optimizer->finish(some_update()));
}

TEST_CASE("spare states are planned for the last units, within the given bytes") {
  HostMemoryDemand demand{.lengths = {1000, 100, 100, 100, 10},
                          .staged = true,
                          .gradient_dtype = at::kFloat,
                          .parameter_dtype = at::kBFloat16};
  const HostMemoryPlan plan = plan_host_memory(demand, 12 * 309);
  CHECK(plan.spares == std::map<int64_t, int64_t>{{10, 1}, {100, 2}});
  CHECK(plan.spare_bytes() == 12 * 210);
  // The pieces need be no longer than the longest shard, in full blocks.
  CHECK(plan.piece_numel == kHostBlock);
  CHECK(plan.staging_bytes() == plan.pieces * kHostBlock * 6);
  CHECK(plan_host_memory(demand, 0).spares.empty());
  // Copies of gradients replace their buffers of pieces.
  demand.keeps_gradients = true;
  CHECK(plan_host_memory(demand, 0).staging_bytes() == plan.pieces * kHostBlock * 2);
  CHECK(plan_host_memory(demand, 12 * 309).spares == plan.spares);
  demand.keeps_gradients = false;
  demand.moment_dtype = at::kBFloat16;
  CHECK(plan_host_memory(demand, 8 * 309).spares == plan.spares);
  CHECK(plan_host_memory(demand, 8 * 309).spare_bytes() == 8 * 210);
  demand.moment_dtype = at::kFloat;
  // On the CPU nothing is transferred.
  demand.staged = false;
  CHECK(plan_host_memory(demand, 0).piece_numel == kHostBlock);
  CHECK(plan_host_memory(demand, 0).staging_bytes() == 0);
  demand.staged = true;

  // 18 bytes per parameter in total: 12 for states, 2 for a parameter in host memory, 4 for spare states and buffers.
  demand.lengths.assign(40, 50'000'000);
  demand.parameters_stay = true;
  const int64_t numel = 40 * int64_t{50'000'000};
  const HostMemoryPlan large = plan_host_memory(demand, default_extra_bytes(demand));
  CHECK(large.spares.at(50'000'000) > 40 / 6);
  const int64_t in_all = 12 * numel + 2 * numel + large.staging_bytes() + large.spare_bytes();
  CHECK(in_all <= 18 * numel);
  CHECK(in_all > 18 * numel - 12 * 50'000'000);
  // With moments in bf16, 8 for states, 2 for a parameter: all units have spare states.
  demand.moment_dtype = at::kBFloat16;
  CHECK(plan_host_memory(demand, default_extra_bytes(demand)).spares.at(50'000'000) == 39);
}

}  // namespace mpzero::parallel
