#pragma once

#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <latch>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "parallel/optimizer/adamw_kernels.hpp"
#include "parallel/optimizer/host_optimizer.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/same_bits.hpp"

namespace mpzero::parallel {

inline bool same_bits(const OptimizerStates& a, const OptimizerStates& b) {
  return same_bits(a.master, b.master) && same_bits(a.exp_avg, b.exp_avg) && same_bits(a.exp_avg_sq, b.exp_avg_sq);
}
inline OptimizerStates copy_of(const OptimizerStates& states) {
  return {.master = states.master.clone(), .exp_avg = states.exp_avg.clone(), .exp_avg_sq = states.exp_avg_sq.clone()};
}

// Waits until `look` returns true. Returns false after half a minute, a limit that only a failing test reaches.
template <typename Look>
bool eventually(const Look& look) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!look()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::yield();
  }
  return true;
}

// Blocks all tasks that are submitted to a team after the gate, until the gate is opened.
class Gate {
 public:
  explicit Gate(ThreadTeam& team) : task_(team.start(team.size(), [this](int64_t) { opened_.wait(); })) {}
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() {
    if (!opened_.try_wait()) opened_.count_down();
    task_->wait();
  }

 private:
  std::latch opened_{1};
  std::shared_ptr<ThreadTeam::Task> task_;
};

// Units with states in host memory, and gradients and parameters on `device`, with the results of a single thread as
// the oracle.
struct Bench {
  Bench(int threads, const std::vector<int64_t>& sizes, const HostMemoryPlan& plan, at::Device device = at::kCPU)
      : keeps_gradients(plan.keeps_gradients), team(threads) {
    std::vector<OptimizerShard*> pointers;
    int64_t first = (int64_t{1} << 32) - 1000;  // positions in a large model
    for (const int64_t length : sizes) {
      auto& shard = shards.emplace_back(std::make_unique<OptimizerShard>(
          length, OptimizerShard::Options{.moment_dtype = plan.moment_dtype, .first = first, .decay = {}}));
      first += length;
      pointers.push_back(shard.get());
      shard->states().master.copy_(at::randn({length}));
      shard->states().exp_avg.copy_(at::randn({length}));
      shard->states().exp_avg_sq.copy_(at::rand({length}));
      gradients.push_back(at::randn({length}).to(at::kBFloat16).to(device));
      parameters.push_back(at::zeros({length}, at::TensorOptions().dtype(at::kBFloat16).device(device)));
      expected.push_back(copy_of(shard->states()));
      expected_parameters.push_back(at::zeros({length}, at::kBFloat16));
    }
    optimizer.emplace(team, pointers,
                      HostOptimizer::Options{.device = device,
                                             .pinned = device.is_cuda(),
                                             .gradient_dtype = at::kBFloat16,
                                             .parameter_dtype = at::kBFloat16,
                                             .memory = plan});
  }

  void take_gradient(size_t u) {
    if (!keeps_gradients) return optimizer->take_gradient(u, gradients[u], parameters[u]);
    // Another unit may overwrite the gradient: passes a copy and then fills the copy with NaN.
    const at::Tensor shared = gradients[u].clone();
    optimizer->take_gradient(u, shared, parameters[u]);
    optimizer->wait_for_copy(u);
    shared.fill_(NAN);
  }
  void take_gradients() {
    for (size_t u = shards.size(); u-- > 0;) take_gradient(u);
  }
  void finish(const AdamWUpdate& update) {
    optimizer->finish(update);
    for (size_t u = 0; u < shards.size(); ++u) expect_update(u, update);
  }
  void expect_update(size_t u, const AdamWUpdate& update) {
    adamw({.gradient = gradients[u].cpu(),
           .master = expected[u].master,
           .exp_avg = expected[u].exp_avg,
           .exp_avg_sq = expected[u].exp_avg_sq,
           .parameter = expected_parameters[u],
           .first = shards[u]->first()},
          update);
  }
  // Compares the results after all queued updates.
  void check() {
    optimizer->wait_for_all();
    for (size_t u = 0; u < shards.size(); ++u) {
      INFO("unit " << u);
      CHECK(optimizer->ahead(u) == HostOptimizer::Ahead::kNone);
      CHECK(same_bits(shards[u]->states(), expected[u]));
      CHECK(same_bits(parameters[u], expected_parameters[u]));
    }
  }

  bool keeps_gradients;
  ThreadTeam team;
  std::vector<std::unique_ptr<OptimizerShard>> shards;
  std::vector<OptimizerStates> expected;
  std::vector<at::Tensor> gradients, parameters, expected_parameters;
  std::optional<HostOptimizer> optimizer;
};

inline AdamWUpdate some_update(double scale = 1.0, int64_t step = 3) {
  AdamWUpdate update = adamw_update({.weight_decay = 0.1}, 1e-2, step, scale);
  update.rounding_seed = static_cast<uint32_t>(step);
  return update;
}

}  // namespace mpzero::parallel
