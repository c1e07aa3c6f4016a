#pragma once

#include <vector>

#include "parallel/comm/measured_communicator.hpp"
#include "parallel/trace/timeline.hpp"

namespace mpzero {

enum class Phase {
  kData,      // the loader, and tokens on their way to the device
  kForward,   // embedding and layers
  kBackward,  // the head with the loss, its forward included, then all the way back
  kOptimizer  // what is left of summing the gradients, their norm, the update
};

// Where the time of one step went, in seconds of the compute stream, or of the host on the CPU. The parts do not
// overlap and add up to the step.
struct StepSplit {
  double data = 0;
  double forward = 0;
  double backward = 0;
  double optimizer = 0;
  // Exposed communication, in whichever phase: computing stood still for it.
  double exposed_parameters = 0;  // being gathered
  double exposed_gradients = 0;   // being summed

  double exposed_communication() const { return exposed_parameters + exposed_gradients; }
  double total() const { return data + forward + backward + optimizer + exposed_communication(); }
  StepSplit& operator+=(const StepSplit& other);
  StepSplit divided_by(double steps) const;
};

// Measures the phases of each step on a timeline, without a wait of its own.
class StepTimer {
 public:
  // All outlive the timer; the communicators measure on `timeline`.
  StepTimer(parallel::Timeline& timeline, parallel::MeasuredCommunicator& parameters,
            parallel::MeasuredCommunicator& gradients)
      : timeline_(timeline), parameters_(parameters), gradients_(gradients) {}
  StepTimer(const StepTimer&) = delete;
  StepTimer& operator=(const StepTimer&) = delete;

  // Here another phase begins. The first one after finish_step() begins a step; time before it belongs to none.
  void enter(Phase phase);
  // These waits for states that the host updates, in the timeline's order, belong to the optimizer, whatever phase
  // they are in.
  void held_up_by_updates(const std::vector<parallel::Stall>& stalls);
  // The host has just waited for all that was queued before the current phase began.
  void caught_up();
  // The step ends here. Returns what has been done since the last call: on the CPU this step; on a GPU this step up to
  // the phase that was the current one in caught_up(), and before it the previous step from there on (its update),
  // which runs while the host is back already.
  StepSplit finish_step();

 private:
  struct Segment {
    Phase phase;
    parallel::Timeline::Mark begin;
    parallel::Timeline::Mark end;
  };
  void close_segment(parallel::Timeline::Mark end);
  // Seconds of those stalls that lie in the segment.
  double stalled(const std::vector<parallel::Stall>& stalls, const Segment& segment) const;

  parallel::Timeline& timeline_;
  parallel::MeasuredCommunicator& parameters_;
  parallel::MeasuredCommunicator& gradients_;
  std::vector<Segment> segments_;  // not reported yet; the last one is open while the timeline runs
  std::vector<parallel::Stall> parameter_stalls_;
  std::vector<parallel::Stall> gradient_stalls_;
  std::vector<parallel::Stall> update_stalls_;
  parallel::Timeline::Mark passed_ = 0;  // the host has waited for this mark
};

}  // namespace mpzero
