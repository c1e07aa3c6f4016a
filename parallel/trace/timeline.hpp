#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

namespace mpzero::parallel {

// Timeline of the compute stream (or of the host, if the host computes) as a sequence of marks. Not thread-safe.
class Timeline {
 public:
  using Mark = int64_t;  // counts from 0

  virtual ~Timeline() = default;
  // Adds a mark at the time when the work queued so far completes, and returns its number.
  virtual Mark mark() = 0;
  // Returns the seconds between two marks. Both marks must be in the past. On a GPU, the host must have waited for the
  // later mark.
  virtual double seconds_between(Mark from, Mark to) const = 0;
  // Drops the marks before `mark`.
  virtual void forget_before(Mark mark) = 0;
  // Returns true if the host computes, so each mark is in the past when mark() returns.
  virtual bool is_host() const = 0;
  // Returns true on the host or, on a GPU, if the timeline's stream is the current stream.
  virtual bool is_current() const = 0;

  // Stalls are recorded only between start() and stop().
  void start() { running_ = true; }
  void stop() { running_ = false; }
  bool running() const { return running_; }

 private:
  bool running_ = false;
};

struct Stall {
  Timeline::Mark begin = 0;
  Timeline::Mark end = 0;
};

// Interface that returns stalls recorded on a timeline.
class StallSource {
 public:
  virtual ~StallSource() = default;
  // Returns the stalls since the last call, in the order of the timeline.
  virtual std::vector<Stall> take_stalls() = 0;
};

// Timeline of host time. `clock` returns seconds since an arbitrary origin.
class HostTimeline final : public Timeline {
 public:
  using Clock = std::function<double()>;
  HostTimeline();  // uses the steady clock
  explicit HostTimeline(Clock clock) : clock_(std::move(clock)) {}

  Mark mark() override;
  double seconds_between(Mark from, Mark to) const override;
  void forget_before(Mark mark) override;
  bool is_host() const override { return true; }
  bool is_current() const override { return true; }

 private:
  Clock clock_;
  std::deque<double> times_;
  Mark first_ = 0;
};

// Returns a host timeline for the CPU, or a timeline of the current stream for a GPU, marked with reused CUDA events.
std::unique_ptr<Timeline> make_timeline(at::Device device);

}  // namespace mpzero::parallel
