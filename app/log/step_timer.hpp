#pragma once

#include <vector>

#include "parallel/trace/timeline.hpp"

namespace mpzero {

enum class Phase {
  kData,      // the loader, and copying tokens to the device
  kForward,   // embedding and layers
  kBackward,  // the head with the loss, including its forward, then the backward of all layers
  kOptimizer  // the rest of the gradient reduction, the norm, the update
};

// Time split of one step, in seconds on the compute stream or, on the CPU, on the host. The parts do not overlap and
// add up to the step.
struct StepSplit {
  double data = 0;
  double forward = 0;
  double backward = 0;
  double optimizer = 0;
  // Exposed communication in any phase: time that computation waits for it.
  double exposed_parameters = 0;  // waiting for gathers
  double exposed_gradients = 0;   // waiting for reductions

  double exposed_communication() const { return exposed_parameters + exposed_gradients; }
  // Time without waits for other ranks.
  double own() const { return data + forward + backward + optimizer; }
  double total() const { return own() + exposed_communication(); }
  StepSplit& operator+=(const StepSplit& other);
  StepSplit divided_by(double steps) const;
};

// Measures the phases of each step on a timeline, without waiting for the device.
class StepTimer {
 public:
  // All arguments must outlive the timer; the communicators of parameters and gradients measure on `timeline`.
  StepTimer(parallel::Timeline& timeline, parallel::StallSource& parameters, parallel::StallSource& gradients)
      : timeline_(timeline), parameters_(parameters), gradients_(gradients) {}
  StepTimer(const StepTimer&) = delete;
  StepTimer& operator=(const StepTimer&) = delete;

  // Begins another phase. The first one after finish_step() begins a step; time before it belongs to no step.
  void enter(Phase phase);
  // Counts these waits for host-side updates of states as optimizer time, in any phase. `stalls`: in the timeline's
  // order.
  void held_up_by_updates(const std::vector<parallel::Stall>& stalls);
  // The host has just waited for all work queued before the current phase.
  void caught_up();
  // Ends the step. Returns the times since the last call: on the CPU those of this step; on a GPU those of this step up
  // to the phase that was current at caught_up(), plus the rest of the previous step (its update), which runs after the
  // host has returned.
  StepSplit finish_step();

 private:
  struct Segment {
    Phase phase;
    parallel::Timeline::Mark begin;
    parallel::Timeline::Mark end;
  };
  void close_segment(parallel::Timeline::Mark end);
  // Seconds of the stalls within the segment.
  double stalled(const std::vector<parallel::Stall>& stalls, const Segment& segment) const;

  parallel::Timeline& timeline_;
  parallel::StallSource& parameters_;
  parallel::StallSource& gradients_;
  std::vector<Segment> segments_;  // not reported yet; the last one is open while the timeline runs
  std::vector<parallel::Stall> parameter_stalls_;
  std::vector<parallel::Stall> gradient_stalls_;
  std::vector<parallel::Stall> update_stalls_;
  parallel::Timeline::Mark passed_ = 0;  // the host has waited for this mark
};

}  // namespace mpzero
