#include "app/simulation/simulated_device.hpp"

#include <algorithm>

#include "app/simulation/simulated_backend.hpp"
#include "base/error.hpp"
#include "parallel/optimizer/adamw_kernels.hpp"

namespace mpzero::plan {
namespace {

SimulatedDevice* the_current = nullptr;

// Returns the bytes that an update reads and writes.
int64_t bytes_of(const parallel::AdamWTensors& t) {
  return static_cast<int64_t>(t.gradient.nbytes() +
                              2 * (t.master.nbytes() + t.exp_avg.nbytes() + t.exp_avg_sq.nbytes()) +
                              t.parameter.nbytes());
}

}  // namespace

SimulatedDevice::SimulatedDevice(Costs costs, c10::DeviceType target) : costs_(std::move(costs)) {
  if (the_current != nullptr) throw_failure("a simulated device already exists");
  simulated_target().type = target;
  register_simulated_backend();
  parallel::simulated_kernels() = {
      .adamw =
          [this](const parallel::AdamWTensors& tensors) {
            queue(Work::kOptimizer, "AdamW", costs_.adamw(bytes_of(tensors)));
          },
      .sum_of_squares =
          [this](const at::Tensor& tensor) {
            queue(Work::kOptimizer, "squares", costs_.squares(static_cast<int64_t>(tensor.nbytes())));
          },
      .others = [this](int64_t bytes) { queue(Work::kElementwise, "compression", costs_.memory(bytes)); }};
  if (costs_.host) cores_.emplace(*costs_.host);
  the_current = this;
}

SimulatedDevice::~SimulatedDevice() {
  parallel::simulated_kernels() = {};
  the_current = nullptr;
}

SimulatedDevice& SimulatedDevice::current() {
  if (the_current == nullptr) throw_failure("no simulated device exists");
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
  if (cores_ && current_ == 0) {
    clock = host_ = cores_->work(host_, seconds);
    if (seconds > 0) record(work, name, host_ - seconds, host_);
    return host_;
  }
  const double begin = std::max(clock, host_);
  memory_.forget_before(host_);
  clock = link != nullptr ? link->use(begin, seconds) : memory_.work(begin, seconds);
  if (seconds > 0) record(work, name, link != nullptr ? clock - seconds : begin, clock);
  host_ += costs_.launch;
  return clock;
}

void SimulatedDevice::share_memory(double seconds, int64_t bytes) {
  if (cores_ || costs_.memory_bytes_per_second <= 0) return;
  const double end = stream_clock(current_);
  memory_.take(end - seconds, end, static_cast<double>(bytes) / costs_.memory_bytes_per_second);
}

int64_t SimulatedDevice::move(const char* name, double seconds) {
  if (seconds > 0) record(Work::kCollective, name, host_, host_ + seconds);
  const SharedCores::Move move = cores_->move(host_, seconds);
  host_ = move.now;
  return move.number;
}

void SimulatedDevice::wait_for_move(int64_t move) {
  // Collectives run in order, so other streams need no wait.
  if (current_ == 0) host_ = cores_->wait(host_, move);
}

}  // namespace mpzero::plan
