#include "parallel/trace/timeline.hpp"

#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <chrono>
#include <vector>

namespace mpzero::parallel {
namespace {

class CudaTimeline final : public Timeline {
 public:
  CudaTimeline() : stream_(c10::cuda::getCurrentCUDAStream()) {}

  Mark mark() override {
    if (free_.empty()) free_.emplace_back(cudaEventDefault);
    events_.push_back(std::move(free_.back()));
    free_.pop_back();
    events_.back().record(stream_);
    return first_ + static_cast<Mark>(events_.size()) - 1;
  }

  double seconds_between(Mark from, Mark to) const override {
    return static_cast<double>(event(from).elapsed_time(event(to))) / 1e3;
  }

  void forget_before(Mark mark) override {
    for (; first_ < mark && !events_.empty(); ++first_) {
      free_.push_back(std::move(events_.front()));
      events_.pop_front();
    }
  }

  bool is_host() const override { return false; }
  bool is_current() const override { return c10::cuda::getCurrentCUDAStream(stream_.device_index()) == stream_; }

 private:
  const c10::cuda::CUDAEvent& event(Mark mark) const { return events_.at(static_cast<size_t>(mark - first_)); }

  c10::cuda::CUDAStream stream_;
  std::deque<c10::cuda::CUDAEvent> events_;  // events of marks first_ and later
  std::vector<c10::cuda::CUDAEvent> free_;
  Mark first_ = 0;
};

}  // namespace

HostTimeline::HostTimeline()
    : clock_(
          [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }) {}

Timeline::Mark HostTimeline::mark() {
  times_.push_back(clock_());
  return first_ + static_cast<Mark>(times_.size()) - 1;
}

double HostTimeline::seconds_between(Mark from, Mark to) const {
  return times_.at(static_cast<size_t>(to - first_)) - times_.at(static_cast<size_t>(from - first_));
}

void HostTimeline::forget_before(Mark mark) {
  for (; first_ < mark && !times_.empty(); ++first_) times_.pop_front();
}

std::unique_ptr<Timeline> make_timeline(at::Device device) {
  if (device.is_cuda()) return std::make_unique<CudaTimeline>();
  return std::make_unique<HostTimeline>();
}

}  // namespace mpzero::parallel
