#pragma once

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

// What this rank's training does, and whether it moves on. One thread trains, another asks.
class RankActivity {
 public:
  // `stuck_after`: seconds, as Liveness::Options has them.
  explicit RankActivity(double stuck_after);

  // From the thread that trains.
  void enter(RunPhase phase, int64_t step);
  void enter(RunPhase phase);  // behind the same step
  // Something has moved on that no collective shows.
  void moved_on() { ticks_.fetch_add(1, std::memory_order_relaxed); }
  // Asks these for asynchronous errors until others are named. Once this returns the former ones are not used any more.
  void watch(std::vector<parallel::Communicator*> communicators);
  void failed(const std::string& error, const std::vector<int>& culprits = {});
  void complain(const std::string& words);
  parallel::FlightRecorder& recorder() { return recorder_; }

  // From the other thread.
  RunPhase phase() const { return phase_; }
  // Whether the thread that trains has failed.
  bool has_failed();
  RankReport report(LivenessTime now);
  // This process has not run for a while, so that standing still meanwhile says nothing.
  void slept(LivenessTime now) { last_motion_ = now; }
  // Makes collectives under way end, before the process does. May wait for other ranks.
  void abort_communicators();

 private:
  std::optional<std::string> error();

  const double stuck_after_;
  parallel::FlightRecorder recorder_;

  // Shared.
  std::atomic<RunPhase> phase_{RunPhase::kSetUp};
  std::atomic<int64_t> step_{0};
  std::atomic<int64_t> ticks_{0};
  std::mutex mutex_;  // of those below
  std::optional<std::string> error_;
  std::vector<int> culprits_;
  std::string complaint_;
  std::vector<parallel::Communicator*> communicators_;

  // Of the thread that asks.
  LivenessTime last_motion_ = LivenessClock::now();
  int64_t seen_motion_ = -1;
};

}  // namespace mpzero
