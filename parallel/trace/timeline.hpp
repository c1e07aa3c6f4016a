#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

namespace mpzero::parallel {

// The time of the compute stream, or of the host where it computes itself, as marks in the order in which they were
// made. Used by one thread.
class Timeline {
 public:
  using Mark = int64_t;  // counts from 0

  virtual ~Timeline() = default;
  // The moment when the work queued so far has been done.
  virtual Mark mark() = 0;
  // Both marks have been passed: on a GPU the host has waited for the later one.
  virtual double seconds_between(Mark from, Mark to) const = 0;
  // Earlier marks are not asked for any more.
  virtual void forget_before(Mark mark) = 0;
  // True where the host does the work: a mark has been passed when mark() returns, and a call takes the time it takes.
  virtual bool is_host() const = 0;
  // Whether work that is queued now belongs to this timeline; on a GPU, that of other streams does not.
  virtual bool is_current() const = 0;

  // Stalls are recorded between start() and stop() only.
  void start() { running_ = true; }
  void stop() { running_ = false; }
  bool running() const { return running_; }

 private:
  bool running_ = false;
};

// When a timeline stood still.
struct Stall {
  Timeline::Mark begin = 0;
  Timeline::Mark end = 0;
};

// Host time. `clock` counts seconds from anywhere.
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

// The host's on the CPU; on a GPU that of the stream that is current now, marked with CUDA events that are used again
// and again.
std::unique_ptr<Timeline> make_timeline(at::Device device);

}  // namespace mpzero::parallel
