#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "app/liveness/link/clock.hpp"
#include "app/liveness/link/rank_status.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/trace/flight_recorder.hpp"

namespace mpzero {

// What this rank's training does, and whether it makes progress. One thread trains, another one asks.
class RankActivity {
 public:
  // `stuck_after`: seconds, as Liveness::Options has them.
  explicit RankActivity(double stuck_after);

  // Called from the training thread.
  void enter(RunPhase phase, int64_t step);
  void enter(RunPhase phase);  // after the same step
  // Records progress that no collective shows.
  void moved_on() { ticks_.fetch_add(1, std::memory_order_relaxed); }
  // Polls these communicators for asynchronous errors until the next call. The former ones are not used after this
  // returns.
  void watch(std::vector<parallel::Communicator*> communicators);
  void failed(const std::string& error, const std::vector<int>& culprits = {});
  void complain(const std::string& message);
  parallel::FlightRecorder& recorder() { return recorder_; }

  // Called from the other thread.
  RunPhase phase() const { return phase_; }
  // Whether the training thread has failed.
  bool has_failed();
  RankReport report(LivenessTime now);
  // This process has not run for that long: the lack of progress during that time does not count.
  void slept(LivenessClock::duration length, LivenessTime now) { last_motion_ = std::min(now, last_motion_ + length); }
  // Ends the collectives in progress before the process ends. May wait for other ranks.
  void abort_communicators();

 private:
  std::optional<std::string> error();

  const double stuck_after_;
  parallel::FlightRecorder recorder_;

  // Shared.
  std::atomic<RunPhase> phase_{RunPhase::kSetUp};
  std::atomic<int64_t> step_{0};
  std::atomic<int64_t> ticks_{0};
  std::mutex mutex_;  // guards those below
  std::optional<std::string> error_;
  std::vector<int> culprits_;
  std::string complaint_;
  std::vector<parallel::Communicator*> communicators_;

  // Used by the thread that asks.
  LivenessTime last_motion_ = LivenessClock::now();
  int64_t seen_motion_ = -1;
};

}  // namespace mpzero
