#pragma once

#include <vector>

#include "parallel/trace/timeline.hpp"

namespace mpzero {

enum class Phase {
  kData,      // data loading, and copies of tokens to the device
  kForward,   // embedding and layers
  kBackward,  // forward and backward pass of the head with the loss, then backward pass of all layers
  kOptimizer  // the remaining gradient reduction, the norm, and the update
};

// Time breakdown of one step in seconds, measured on the compute stream or, on the CPU, on the host. The parts do not
// overlap, and their sum is the duration of the step.
struct StepSplit {
  double data = 0;
  double forward = 0;
  double backward = 0;
  double optimizer = 0;
  // Exposed communication in all phases.
  double exposed_parameters = 0;  // waits for gathers
  double exposed_gradients = 0;   // waits for reductions

  double exposed_communication() const { return exposed_parameters + exposed_gradients; }
  // Returns the step time excluding waits for other ranks.
  double own() const { return data + forward + backward + optimizer; }
  double total() const { return own() + exposed_communication(); }
  StepSplit& operator+=(const StepSplit& other);
  StepSplit divided_by(double steps) const;
};

// Measures the phases of each step on a timeline without synchronizing the device.
class StepTimer {
 public:
  // All arguments must outlive the timer. `parameters` and `gradients` must record stalls on `timeline`.
  StepTimer(parallel::Timeline& timeline, parallel::StallSource& parameters, parallel::StallSource& gradients)
      : timeline_(timeline), parameters_(parameters), gradients_(gradients) {}
  StepTimer(const StepTimer&) = delete;
  StepTimer& operator=(const StepTimer&) = delete;

  // Begins a phase. The first phase after finish_step() begins a step. Time between two steps is not counted.
  void enter(Phase phase);
  // Counts waits for optimizer updates on the host as optimizer time, regardless of the phase. `stalls`: ordered by
  // time.
  void held_up_by_updates(const std::vector<parallel::Stall>& stalls);
  // Must be called when the host has waited for all work queued before the current phase.
  void caught_up();
  // Ends the step and returns the measured times. On the CPU, the returned times are those of this step. On a GPU, the
  // returned times are those of this step up to the phase that was current at caught_up(), plus the remainder of the
  // previous step (the update), which runs asynchronously.
  StepSplit finish_step();

 private:
  struct Segment {
    Phase phase;
    parallel::Timeline::Mark begin;
    parallel::Timeline::Mark end;
  };
  void close_segment(parallel::Timeline::Mark end);
  // Returns the total time, in seconds, of the stalls within the segment.
  double stalled(const std::vector<parallel::Stall>& stalls, const Segment& segment) const;

  parallel::Timeline& timeline_;
  parallel::StallSource& parameters_;
  parallel::StallSource& gradients_;
  std::vector<Segment> segments_;  // segments not yet reported; the last segment is open while the timeline runs
  std::vector<parallel::Stall> parameter_stalls_;
  std::vector<parallel::Stall> gradient_stalls_;
  std::vector<parallel::Stall> update_stalls_;
  parallel::Timeline::Mark passed_ = 0;  // last mark that the host has waited for
};

}  // namespace mpzero
