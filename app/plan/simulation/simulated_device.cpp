#include "app/plan/simulation/simulated_device.hpp"

#include <algorithm>

#include "app/plan/simulation/simulated_backend.hpp"
#include "base/error.hpp"
#include "parallel/optimizer/adamw_kernels.hpp"

namespace mpzero::plan {
namespace {

SimulatedDevice* the_current = nullptr;

}  // namespace

SimulatedDevice::SimulatedDevice(Costs costs) : costs_(std::move(costs)) {
  if (the_current != nullptr) throw_failure("there is a simulated device already");
  register_simulated_backend();
  parallel::simulated_kernels() = {
      .adamw =
          [this](const parallel::AdamWTensors& tensors) {
            queue(Work::kOptimizer, "AdamW", costs_.adamw(tensors.master.numel()));
          },
      .sum_of_squares =
          [this](const at::Tensor& tensor) { queue(Work::kOptimizer, "squares", costs_.squares(tensor.numel())); },
      .others = [this](int64_t bytes) { queue(Work::kElementwise, "compression", costs_.memory(bytes)); }};
  the_current = this;
}

SimulatedDevice::~SimulatedDevice() {
  parallel::simulated_kernels() = {};
  the_current = nullptr;
}

SimulatedDevice& SimulatedDevice::current() {
  if (the_current == nullptr) throw_failure("there is no simulated device");
  return *the_current;
}

c10::StreamId SimulatedDevice::exchange_stream(c10::StreamId stream) { return std::exchange(current_, stream); }

c10::StreamId SimulatedDevice::new_stream() {
  clocks_.push_back(0);
  return static_cast<c10::StreamId>(clocks_.size()) - 1;
}

void SimulatedDevice::wait_until(c10::StreamId stream, double time) {
  double& clock = clocks_[static_cast<size_t>(stream)];
  clock = std::max(clock, time);
}

double SimulatedDevice::queue(Work work, const char* name, double seconds, BusyLink* link) {
  double& clock = clocks_[static_cast<size_t>(current_)];
  const double begin = std::max(clock, host_);
  clock = link != nullptr ? link->use(begin, seconds) : begin + seconds;
  if (seconds > 0) record(work, name, clock - seconds, clock);
  host_ += costs_.launch;
  return clock;
}

}  // namespace mpzero::plan
