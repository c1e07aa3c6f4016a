#pragma once

#include <future>
#include <random>

#include "tests/parallel/host_optimizer_bench.hpp"

namespace mpzero::parallel {

// Runs HostOptimizer in a random interleaving of passes, right and wrong expectations, discards, snapshots and released
// units, and compares the results with a sequential AdamW.
class Interleaving {
 public:
  static constexpr int kSteps = 40;

  explicit Interleaving(uint32_t seed, at::Device device = at::kCPU)
      : random_(seed),
        sizes_(random_sizes()),
        bench_(1 + below(3), sizes_, random_plan(device), device),
        mine_(sizes_.size(), true) {
    for (size_t u = 0; u < sizes_.size(); ++u) {
      bench_.optimizer->publish(u, bench_.parameters[u]);
      bench_.expected_parameters[u].copy_(bench_.expected[u].master);
    }
  }
  ~Interleaving() { finish_writing(); }
  Interleaving(const Interleaving&) = delete;
  Interleaving& operator=(const Interleaving&) = delete;

  void run() {
    for (int step = 0; step < kSteps; ++step) {
      if (chance(3)) begin_snapshot();
      pass(step);
      if (chance(6)) finish_writing();
      if (chance(4)) check();
      if (chance(40)) let_a_unit_go();
      if (chance(20)) publish_a_unit();
    }
    finish_writing();
    check();
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<uint32_t>(limit)); }
  bool chance(int of) { return below(of) == 0; }
  void linger() {
    const int turns = below(4) == 0 ? below(2000) : 0;
    for (int i = 0; i < turns; ++i) std::this_thread::yield();
  }

  std::vector<int64_t> random_sizes() {
    static const std::vector<int64_t> kSizes{64, kHostBlock, 2 * kHostBlock + 64, 2 * kHostBlock + 64, 11 * kHostBlock};
    std::vector<int64_t> sizes;
    for (int u = 2 + below(4); u > 0; --u) sizes.push_back(kSizes[static_cast<size_t>(below(5))]);
    return sizes;
  }
  HostMemoryPlan random_plan(at::Device device) {
    HostMemoryPlan plan;
    if (chance(2)) plan.moment_dtype = at::kBFloat16;
    plan.keeps_gradients = chance(2);
    plan.piece_numel = kHostBlock;
    plan.pieces = device.is_cuda() ? 3 : 0;
    for (const int64_t length : sizes_) {
      if (chance(2)) ++plan.spares[length];
    }
    return plan;
  }

  // Runs one step: gradients, a decision based on the norm, and an update or none.
  void pass(int step) {
    const auto scales = [&] { return chance(2) ? 1.0 : 0.5; };
    const AdamWUpdate decided = some_update(scales(), step + 1);
    if (!chance(4)) bench_.optimizer->expect(some_update(scales(), step + 1));
    for (size_t u = sizes_.size(); u-- > 0;) {
      if (!mine_[u]) continue;
      bench_.optimizer->wait(u);
      bench_.gradients[u].mul_(chance(2) ? -1 : 0.5);
      bench_.take_gradient(u);
      linger();
    }
    if (beginning_.valid()) beginning_.get();  // as before_update() does
    if (chance(8)) {
      bench_.optimizer->discard();
      return;
    }
    if (chance(12)) bench_.optimizer->add_spares_for_holds();
    bench_.optimizer->finish(decided);
    for (size_t u = 0; u < sizes_.size(); ++u) {
      if (mine_[u]) bench_.expect_update(u, decided);
    }
    linger();
  }

  struct Held {
    size_t unit = 0;
    StateHold hold;
    OptimizerStates expected;
  };

  // Holds some units and compares them repeatedly on another thread, as slowly as a writer.
  void begin_snapshot() {
    finish_writing();
    std::vector<size_t> units;
    for (size_t u = 0; u < sizes_.size(); ++u) {
      if (mine_[u] && !chance(3)) units.push_back(u);
    }
    std::vector<OptimizerStates> expected;
    for (const size_t u : units) expected.push_back(copy_of(bench_.expected[u]));
    const int turns = 1 + below(20);
    std::promise<void> begun;
    beginning_ = begun.get_future();
    writing_ = std::async(std::launch::async,
                          [this, units, expected = std::move(expected), turns, begun = std::move(begun)]() mutable {
                            std::vector<Held> held;
                            for (size_t i = 0; i < units.size(); ++i) {
                              held.push_back({units[i], bench_.optimizer->hold(units[i]), std::move(expected[i])});
                            }
                            begun.set_value();
                            bool same = true;
                            for (; !held.empty(); held.pop_back()) {
                              for (int turn = 0; turn < turns; ++turn) {
                                for (const Held& each : held)
                                  same = same && same_bits(each.hold.states(), each.expected);
                              }
                            }
                            return same;
                          });
  }
  void finish_writing() {
    if (beginning_.valid()) beginning_.get();
    if (writing_.valid()) CHECK(writing_.get());
  }

  void check() {
    bench_.optimizer->wait_for_all();
    for (size_t u = 0; u < sizes_.size(); ++u) {
      if (!mine_[u]) continue;
      REQUIRE(same_bits(bench_.shards[u]->states(), bench_.expected[u]));
      REQUIRE(same_bits(bench_.parameters[u], bench_.expected_parameters[u]));
    }
  }

  // Releases a unit, like a change of the host ratio.
  void let_a_unit_go() {
    const auto u = static_cast<size_t>(below(static_cast<int>(sizes_.size())));
    if (!mine_[u]) return;
    if (beginning_.valid()) beginning_.get();
    bench_.optimizer->release(u);
    mine_[u] = false;
  }
  void publish_a_unit() {
    const auto u = static_cast<size_t>(below(static_cast<int>(sizes_.size())));
    if (!mine_[u]) return;
    bench_.optimizer->publish(u, bench_.parameters[u]);
  }

  std::mt19937 random_;
  std::vector<int64_t> sizes_;
  Bench bench_;
  std::vector<bool> mine_;  // units that the optimizer updates
  std::future<void> beginning_;
  std::future<bool> writing_;
};

}  // namespace mpzero::parallel
