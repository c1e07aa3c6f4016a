#pragma once

#include <atomic>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "app/liveness/early_stop.hpp"
#include "app/liveness/final_report.hpp"
#include "app/liveness/link/clock.hpp"
#include "app/liveness/link/rank_meeting.hpp"
#include "app/liveness/link/rank_peers.hpp"
#include "app/liveness/link/rank_roster.hpp"
#include "app/liveness/liveness.hpp"
#include "app/liveness/monitor_link.hpp"
#include "app/liveness/rank_activity.hpp"
#include "app/liveness/rank_monitor.hpp"

namespace mpzero {

// The thread of Liveness that runs next to training: the order in which the rank receives, sends, judges and ends.
class Liveness::Thread {
 public:
  Thread(parallel::MpiRuntime& mpi, const StopRequest& stop, Options options);
  ~Thread();
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  // Called from the training thread.
  RankActivity& activity() { return activity_; }
  const std::string& warning() const { return warning_; }
  void failed(const std::string& error, const std::vector<int>& culprits);
  bool overdue(const std::string& message);

 private:
  using Clock = LivenessClock;
  using Time = LivenessTime;
  // Whether this rank is the one that all others report to.
  enum class Role : uint8_t { kReports, kMonitors };

  Thread(RankMeeting meeting, const StopRequest& stop, Options options);
  void run();
  void wait_for_news();
  void excuse_silence(Time now);
  void hear_monitor(Time now);
  void hear_peers(Time now);
  void take(const RankPeers::News& news, Time now);
  // Prints a warning: "rank R on HOST" followed by `message`. Prints nothing if `message` is empty.
  void warn(const std::string& message) const;
  void beat_if_due(Time now);
  void beat(Time now);
  void look_for_failures(Time now);
  void handle_stop(Time now);
  void ask_to_stop(int exit_code, Time now);
  void leave();
  void see_the_others_off();
  [[noreturn]] void end_all(const message::End& end);
  [[noreturn]] void end(int exit_code);

  parallel::MpiRuntime* mpi_ = nullptr;  // whose collectives activity_ records
  const StopRequest& stop_;
  const Options options_;
  const ReportFacts report_facts_;
  const double silent_after_;  // seconds; 0: never
  const std::string warning_;
  const RankRoster roster_;
  RankActivity activity_;
  Role role_;
  MonitorLink link_;
  std::optional<RankPeers> peers_;  // std::nullopt if the ranks do not watch each other
  RankMonitor monitor_;
  EarlyStop early_stop_;
  Time last_beat_;
  std::atomic<bool> leaving_{false};
  bool leaves_in_haste_ = false;  // written before leaving_
  std::latch started_{1};
  std::thread thread_;
};

}  // namespace mpzero
