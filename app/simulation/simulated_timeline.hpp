#pragma once

#include <vector>

#include "app/simulation/simulated_device.hpp"
#include "parallel/trace/timeline.hpp"

namespace mpzero::plan {

// Timeline of the simulated device's default stream.
class SimulatedTimeline final : public parallel::Timeline {
 public:
  Mark mark() override {
    SimulatedDevice& device = SimulatedDevice::current();
    times_.push_back(device.clock(0));
    device.host_calls();
    return static_cast<Mark>(times_.size()) - 1;
  }
  double seconds_between(Mark from, Mark to) const override {
    return times_.at(static_cast<size_t>(to)) - times_.at(static_cast<size_t>(from));
  }
  void forget_before(Mark /*mark*/) override {}
  bool is_host() const override { return SimulatedDevice::current().is_host(); }
  bool is_current() const override { return SimulatedDevice::current().current_stream() == 0; }

 private:
  std::vector<double> times_;
};

}  // namespace mpzero::plan
