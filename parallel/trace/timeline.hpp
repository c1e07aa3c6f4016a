#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

namespace mpzero::parallel {

// The time of the compute stream, or of the host if it computes itself, as marks in the order of their creation. Used
// by one thread.
class Timeline {
 public:
  using Mark = int64_t;  // counts from 0

  virtual ~Timeline() = default;
  // Marks the time when the work queued so far is done.
  virtual Mark mark() = 0;
  // Requires that both marks have been passed: on a GPU, that the host has waited for the later one.
  virtual double seconds_between(Mark from, Mark to) const = 0;
  // Drops earlier marks.
  virtual void forget_before(Mark mark) = 0;
  // True if the host does the work: a mark has been passed when mark() returns, and the duration of a call is the
  // host's time.
  virtual bool is_host() const = 0;
  // Whether work that is queued now belongs to this timeline; on a GPU, work on other streams does not.
  virtual bool is_current() const = 0;

  // Stalls are recorded between start() and stop() only.
  void start() { running_ = true; }
  void stop() { running_ = false; }
  bool running() const { return running_; }

 private:
  bool running_ = false;
};

// A period in which a timeline was stalled.
struct Stall {
  Timeline::Mark begin = 0;
  Timeline::Mark end = 0;
};

// Reports when it has stalled a timeline.
class StallSource {
 public:
  virtual ~StallSource() = default;
  // The stalls since the last call, in the timeline's order.
  virtual std::vector<Stall> take_stalls() = 0;
};

// Host time. `clock` counts seconds from any origin.
class HostTimeline final : public Timeline {
 public:
  using Clock = std::function<double()>;
  HostTimeline();  // the steady clock
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

// The host's timeline on the CPU; on a GPU the timeline of the current stream, marked with CUDA events that are reused.
std::unique_ptr<Timeline> make_timeline(at::Device device);

}  // namespace mpzero::parallel
