#pragma once

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "app/simulation/simulated_device.hpp"
#include "parallel/optimizer/host_updater.hpp"

namespace mpzero::plan {

// Simulates the pipeline of HostOptimizer: gradients to the host, updates, and parameters to the device. Uses the same
// pieces, order and number of buffers as HostOptimizer. Updates units before the gradient norm is known as long as
// spare memory for states remains. Gradient clipping and checkpoints are not simulated.
class SimulatedHostUpdater final : public parallel::HostUpdater {
 public:
  // `seconds`: time to update N parameters on this rank's share of the host's cores.
  SimulatedHostUpdater(const std::vector<parallel::OptimizerShard*>& shards, const Options& options,
                       std::function<double(int64_t)> seconds);

  bool updates(size_t unit) const override { return units_[unit].numel > 0; }
  void expect(const parallel::AdamWUpdate& update) override;
  void take_gradient(size_t unit, const at::Tensor& gradient, const at::Tensor& parameter) override;
  void wait_for_copy(size_t unit) override;
  void finish(const parallel::AdamWUpdate& update) override;
  void discard() override;
  void publish(size_t unit, const at::Tensor& parameter) override;
  bool ready(size_t unit) override;
  void wait(size_t unit) override;
  void wait_for_all() override;
  void wait_for_states(size_t unit) override;
  parallel::StateHold hold(size_t unit) override;
  void add_spares_for_holds() override {}
  void wait_for_holds(size_t /*unit*/) override {}
  void release(size_t unit) override { units_[unit].numel = 0; }
  parallel::MemoryUse memory_use() const override;

  // Returns the number of units that the last step updated before the gradient norm was known.
  int64_t units_ahead() const { return ahead_; }

 private:
  struct Unit {
    int64_t numel = 0;                                // 0: not updated by the host
    int64_t gradient_bytes = 0, parameter_bytes = 0;  // per element; 0 if parameters stay on the host
    double released = 0;                              // when the gradient is complete
    double copied = 0;                                // when its copy is complete, if the plan keeps gradients
    double done = 0;                                  // when the states are updated
    double uploaded = 0;
  };
  struct Arrived {
    size_t unit;
    double at;
  };

  // Copies `count` elements of the unit's gradient to the host, starting at time `ready`. Returns the end time.
  double copy_down(const Unit& unit, int64_t count, double ready);
  // Returns the earliest time at which the thread can begin a job that it received at time `given`.
  double earliest_begin(double given) const;
  void run(size_t unit, double given, bool updates_states);

  Options options_;
  std::function<double(int64_t)> seconds_;
  SimulatedDevice& device_;
  c10::StreamId down_, up_;
  std::vector<Unit> units_;
  bool expects_ = false;
  std::deque<Arrived> arrived_;  // units that may be updated before the norm is known
  int64_t ahead_ = 0;
  double issued_ = 0;             // when the thread issued the last piece
  double cores_free_ = 0;         // end of the last update, since pieces are updated in order
  std::deque<double> in_flight_;  // when the buffers in use are released
};

}  // namespace mpzero::plan
