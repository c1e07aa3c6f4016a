#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/trace/flight_recorder.hpp"

namespace mpzero {

enum class RunPhase : uint8_t { kNetwork, kSetUp, kFirstStep, kTraining, kValidation, kCheckpoint, kEnding };

// Returns the name of a phase in evidence files: "network", "setup", …
const char* name_of(RunPhase phase);
// Returns text for messages: "in step 12", "during checkpointing after step 12", …
std::string describe(RunPhase phase, int64_t step);

// Phase and progress of this rank. The training thread reports progress, and the watchdog checks for stalls.
class RankActivity {
 public:
  using Clock = std::chrono::steady_clock;
  using Now = std::function<Clock::time_point()>;

  // `stuck_after`: the value of --stuck_after in seconds. 0: no limit.
  explicit RankActivity(double stuck_after, Now now = Clock::now);

  // Marks the beginning of a phase. Called by the training thread.
  void enter(RunPhase phase, int64_t step);
  // Reports progress outside of collectives.
  void moved_on();
  parallel::FlightRecorder& recorder() { return recorder_; }
  const parallel::FlightRecorder& recorder() const { return recorder_; }

  struct Report {
    RunPhase phase = RunPhase::kSetUp;
    int64_t step = 0;
    int64_t progress = 0;  // progress counter
    double idle = 0;       // seconds without progress, excluding `gap`
    double limit = 0;      // maximum of `idle` in seconds; 0: no limit
    double gap = 0;        // seconds, since the last progress, during which the watchdog did not run
  };
  // Called by the watchdog about every kTurn. An interval much longer than kTurn means that the process or its host was
  // suspended; such an interval counts neither as idle time nor as part of a step.
  static constexpr std::chrono::milliseconds kTurn{100};
  Report take_turn();
  // Returns the current phase and progress. Thread-safe.
  Report report() const;

 private:
  void exclude_gap(Clock::time_point now);
  double limit() const;
  Report report_at(Clock::time_point now) const;

  const double stuck_after_;
  const Now now_;
  parallel::FlightRecorder recorder_;

  mutable std::mutex mutex_;  // guards the members below
  RunPhase phase_ = RunPhase::kSetUp;
  int64_t step_ = 0;
  int64_t moves_ = 0;
  Clock::time_point entered_;  // start of the phase, plus the gaps since then
  std::vector<double> steps_;  // ring buffer of step durations in seconds
  size_t next_step_ = 0;
  double longest_step_ = 0;
  Clock::time_point last_turn_;
  Clock::time_point last_motion_;
  int64_t seen_ = -1;
  double gap_ = 0;
  Clock::time_point gap_end_;
};

}  // namespace mpzero
