#pragma once

#include <optional>

#include "app/liveness/link/clock.hpp"

namespace mpzero {

// The wish that a run ends without a save: before its first step, or at once. Time is given, so that nothing here
// waits.
class EarlyStop {
 public:
  // This rank, or another, was asked to end with this exit code; higher ones are more urgent. Whether that is new.
  bool ask(int exit_code, LivenessTime now);

  bool asked() const { return since_.has_value(); }
  // What the run ends with, once asked.
  int exit_code() const { return *exit_code_; }
  // The monitor ends the run only now, since a launcher asks all ranks to stop when one has died: that is a failure,
  // and shows within this time.
  bool settled(LivenessTime now) const;
  // The monitor has not ended the run: this rank ends itself.
  bool overdue(LivenessTime now) const;

 private:
  std::optional<int> exit_code_;
  std::optional<LivenessTime> since_;
};

}  // namespace mpzero
