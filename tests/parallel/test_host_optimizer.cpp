#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <set>

#include "parallel/adamw_kernels.hpp"
#include "parallel/host_optimizer.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {
namespace {

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

// Until `look` is true, for ten seconds at the most.
template <typename Look>
bool comes_true(const Look& look) {
  for (int i = 0; i < 10000 && !look(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return look();
}

// Units of lengths that are and are not whole pieces and blocks, with states, gradients and parameters.
struct Bench {
  explicit Bench(int threads, int64_t spare_bytes = int64_t{1} << 40, std::vector<int64_t> sizes = lengths())
      : team(threads) {
    std::vector<OptimizerShard*> pointers;
    HostMemoryDemand demand;
    for (const int64_t length : sizes) {
      auto& shard = shards.emplace_back(std::make_unique<OptimizerShard>(length, OptimizerShard::Options{}));
      pointers.push_back(shard.get());
      demand.lengths.push_back(length);
      shard->states().master.copy_(at::randn({length}));
      shard->states().exp_avg.copy_(at::randn({length}));
      shard->states().exp_avg_sq.copy_(at::rand({length}));
      gradients.push_back(at::randn({length}).to(at::kBFloat16));
      parameters.push_back(at::zeros({length}, at::kBFloat16));
      before.push_back({.master = shard->states().master.clone(),
                        .exp_avg = shard->states().exp_avg.clone(),
                        .exp_avg_sq = shard->states().exp_avg_sq.clone()});
    }
    optimizer.emplace(
        team, pointers,
        HostOptimizer::Options{.parameter_dtype = at::kBFloat16, .memory = plan_host_memory(demand, spare_bytes)});
  }
  static std::vector<int64_t> lengths() { return {3'000'064, 64, (int64_t{1} << 20) + kHostBlock, 128, 64}; }

  void take_gradients() {
    for (size_t u = shards.size(); u-- > 0;) optimizer->take_gradient(u, gradients[u], parameters[u]);
  }
  // Oracle: the update of one thread, in place, of the states that there were.
  void check_updated(const AdamWUpdate& update) {
    for (size_t u = 0; u < shards.size(); ++u) {
      OptimizerStates expected = before[u];
      const at::Tensor parameter = at::zeros({shards[u]->numel()}, at::kBFloat16);
      adamw({.gradient = gradients[u],
             .master = expected.master,
             .exp_avg = expected.exp_avg,
             .exp_avg_sq = expected.exp_avg_sq,
             .parameter = parameter},
            update);
      INFO("unit " << u);
      check_states(u, expected);
      CHECK(same_bits(parameters[u], parameter));
    }
  }
  void check_states(size_t u, const OptimizerStates& expected) {
    CHECK(same_bits(shards[u]->states().master, expected.master));
    CHECK(same_bits(shards[u]->states().exp_avg, expected.exp_avg));
    CHECK(same_bits(shards[u]->states().exp_avg_sq, expected.exp_avg_sq));
  }

  ThreadTeam team;
  std::vector<std::unique_ptr<OptimizerShard>> shards;
  std::vector<OptimizerStates> before;
  std::vector<at::Tensor> gradients, parameters;
  std::optional<HostOptimizer> optimizer;
};

AdamWUpdate some_update(double scale = 1.0) { return adamw_update({.weight_decay = 0.1}, 1e-2, 3, scale); }

}  // namespace

TEST_CASE("a team does each block once, in the order of its tasks") {
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
    // All of the first task's blocks have been begun before one of the second is.
    CHECK(late <= 3 * threads);
    team.run(0, [](int64_t) { FAIL(); });
  }
}

TEST_CASE("what a block throws comes out of the wait") {
  ThreadTeam team(2);
  const auto task = team.start(10, [](int64_t block) {
    if (block == 7) throw std::runtime_error("block 7");
  });
  CHECK_THROWS_WITH(task->wait(), "block 7");
  team.run(10, [](int64_t) {});
}

TEST_CASE("a team finishes what it has been given before it ends") {
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

TEST_CASE("the host optimizer's updates have the bits of one thread's") {
  for (const int threads : {1, 2, 5}) {
    Bench bench(threads);
    bench.take_gradients();
    bench.optimizer->finish(some_update(0.25));
    bench.optimizer->wait_for_all();
    bench.check_updated(some_update(0.25));
  }
}

TEST_CASE("a right expectation is worked on ahead and has the same bits") {
  Bench bench(3);
  bench.optimizer->expect(some_update());
  bench.take_gradients();
  // The parameters change before finish() is called, and no state does.
  for (size_t u = 0; u < bench.shards.size(); ++u) {
    CHECK(comes_true([&] { return bench.parameters[u][-1].item<float>() != 0; }));
    bench.check_states(u, bench.before[u]);
  }
  bench.optimizer->finish(some_update());
  bench.optimizer->wait_for_all();
  bench.check_updated(some_update());
}

TEST_CASE("a wrong expectation leaves no trace, however far it has come") {
  for (int milliseconds = 0; milliseconds < 8; ++milliseconds) {
    Bench bench(2);
    bench.optimizer->expect(some_update());
    bench.take_gradients();
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    bench.optimizer->finish(some_update(0.5));
    bench.optimizer->wait_for_all();
    bench.check_updated(some_update(0.5));
  }
}

TEST_CASE("a right expectation may be confirmed at any moment") {
  for (int milliseconds = 0; milliseconds < 8; ++milliseconds) {
    Bench bench(2);
    bench.optimizer->expect(some_update());
    bench.take_gradients();
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    bench.optimizer->finish(some_update());
    bench.optimizer->wait_for_all();
    bench.check_updated(some_update());
  }
}

TEST_CASE("discarding restores states and parameters") {
  for (int milliseconds = 0; milliseconds < 8; milliseconds += 3) {
    Bench bench(2);
    for (size_t u = 0; u < bench.shards.size(); ++u) bench.optimizer->publish(u, bench.parameters[u]);
    bench.optimizer->wait_for_all();
    bench.optimizer->expect(some_update());
    bench.take_gradients();
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    bench.optimizer->discard();
    for (size_t u = 0; u < bench.shards.size(); ++u) {
      bench.check_states(u, bench.before[u]);
      CHECK(same_bits(bench.parameters[u], bench.before[u].master.to(at::kBFloat16)));
    }
    // And the next step goes on from there.
    bench.take_gradients();
    bench.optimizer->finish(some_update());
    bench.optimizer->wait_for_all();
    bench.check_updated(some_update());
  }
}

TEST_CASE("only as many units go ahead as there are spare states") {
  // Room for one of two units of the same length; the later one's gradient comes first.
  Bench bench(2, 1'000'000 * 12, {1'000'000, 1'000'000});
  CHECK(bench.optimizer->memory_use().host_spares == 12'000'000);
  bench.optimizer->expect(some_update());
  bench.take_gradients();
  CHECK(comes_true([&] { return bench.parameters[1][-1].item<float>() != 0; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(bench.parameters[0].count_nonzero().item<int64_t>() == 0);
  bench.optimizer->finish(some_update());
  bench.optimizer->wait_for_all();
  bench.check_updated(some_update());
}

TEST_CASE("a unit can be waited for while later ones are updated") {
  Bench bench(1, 0, std::vector<int64_t>(12, 2'000'000));
  bench.take_gradients();
  bench.optimizer->finish(some_update());
  bench.optimizer->wait(0);
  CHECK(bench.parameters[0][-1].item<float>() != 0);
  CHECK(bench.optimizer->ready(0));
  CHECK_FALSE(bench.optimizer->ready(11));
  bench.optimizer->wait_for_all();
  CHECK(bench.optimizer->ready(11));
  bench.check_updated(some_update());
}

TEST_CASE("an optimizer that ends with work before it ends") {
  Bench bench(2);
  bench.optimizer->expect(some_update());
  bench.take_gradients();
  bench.optimizer->finish(some_update(0.5));
  bench.optimizer.reset();
}

TEST_CASE("what fails in the optimizer's thread comes out of every later wait") {
  Bench bench(2, 0);
  // A gradient of no type that AdamW knows has no memory to read: its access fails in the other thread.
  for (size_t u = bench.shards.size(); u-- > 0;) bench.optimizer->take_gradient(u, at::Tensor(), bench.parameters[u]);
  bench.optimizer->finish(some_update());
  CHECK_THROWS(bench.optimizer->wait_for_all());
  CHECK_THROWS(bench.optimizer->wait(0));
  CHECK_THROWS(bench.optimizer->finish(some_update()));
}

TEST_CASE("spare states are planned for the last units, within their bytes") {
  HostMemoryDemand demand{.lengths = {1000, 100, 100, 100, 10},
                          .staged = true,
                          .gradient_dtype = at::kFloat,
                          .parameter_dtype = at::kBFloat16};
  const HostMemoryPlan plan = plan_host_memory(demand, 12 * 309);
  CHECK(plan.spares == std::map<int64_t, int64_t>{{10, 1}, {100, 2}});
  CHECK(plan.spare_bytes() == 12 * 210);
  // The pieces need be no longer than the longest share, in whole blocks.
  CHECK(plan.piece_numel == kHostBlock);
  CHECK(plan.staging_bytes() == plan.pieces * kHostBlock * 6);
  CHECK(plan_host_memory(demand, 0).spares.empty());

  // 18 bytes a parameter for all: 12 of states, 2 of a parameter that stays, 4 for spare states and buffers.
  demand.lengths.assign(40, 50'000'000);
  demand.parameters_stay = true;
  const int64_t numel = 40 * int64_t{50'000'000};
  const HostMemoryPlan large = plan_host_memory(demand, default_extra_bytes(demand));
  CHECK(large.spares.at(50'000'000) > 40 / 6);
  const int64_t in_all = 12 * numel + 2 * numel + large.staging_bytes() + large.spare_bytes();
  CHECK(in_all <= 18 * numel);
  CHECK(in_all > 18 * numel - 12 * 50'000'000);
}

}  // namespace mpzero::parallel
