#pragma once

#include <atomic>
#include <functional>
#include <latch>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "app/liveness/decision/rank_watch.hpp"
#include "app/liveness/early_stop.hpp"
#include "app/liveness/final_report.hpp"
#include "app/liveness/link/clock.hpp"
#include "app/liveness/link/dialer.hpp"
#include "app/liveness/link/rank_meeting.hpp"
#include "app/liveness/liveness.hpp"
#include "app/liveness/rank_activity.hpp"
#include "app/liveness/watch_sockets.hpp"

namespace mpzero {

// The thread of Liveness that runs next to training: the order in which the rank receives, sends, judges and ends.
class Liveness::Thread {
 public:
  Thread(parallel::MpiRuntime& mpi, const StopRequest& stop, const Options& options);
  ~Thread();
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  // Called from the training thread.
  RankActivity& activity() { return activity_; }
  const std::string& warning() const { return warning_; }
  void failed(const std::string& error, const std::vector<int>& culprits);
  bool overdue(const std::string& message);
  void use_device(at::Device device);
  // See EndRecord.
  void record_end(std::function<void(std::string_view status, std::string_view reason)> record);

 private:
  using Clock = LivenessClock;
  using Time = LivenessTime;
  // How this rank takes part in the ranks' watch.
  struct Watching {
    Watching(const RankRoster& roster, RankMeeting meeting, double silent_after, Time now)
        : sockets(roster, std::move(*meeting.peers), std::move(meeting.monitor)),
          watch(roster.ranks, roster.own, silent_after, sockets, now) {}
    WatchSockets sockets;
    RankWatch watch;
  };

  Thread(RankMeeting meeting, const StopRequest& stop, Options options);
  void run();
  // Makes the GPU that the training thread has chosen this thread's own.
  void adopt_gpu();
  void wait_for_news();
  void excuse_sleep(Time now);
  // Waits for news, receives, sends what is due, judges. Ends the process if the run ends.
  void take_turn();
  void take_part(Time now);
  void beat_if_due(Time now);
  // Prints a warning: "rank R on HOST" followed by `message`.
  void warn(const std::string& message) const;
  void handle_stop(Time now);
  void ask_to_stop(int exit_code, Time now);
  void leave();
  void see_the_others_off();
  // Calls what record_end() was given.
  void write_end_record(const std::string& status, const std::string& reason);
  [[noreturn]] void end_run(const RankWatch::Ending& ending);
  [[noreturn]] void end_all(const message::End& end);
  [[noreturn]] void end(int exit_code);

  parallel::MpiRuntime* mpi_ = nullptr;  // whose collectives activity_ records
  const StopRequest& stop_;
  const Options options_;
  const double silent_after_;  // seconds; 0: never
  const std::string warning_;
  const RankRoster roster_;
  ReportFacts report_facts_;
  RankActivity activity_;
  std::optional<Watching> watching_;  // std::nullopt if the ranks do not watch each other
  EarlyStop early_stop_;
  std::mutex end_record_mutex_;
  std::function<void(std::string_view, std::string_view)> end_record_;  // guarded by it
  Time last_turn_;
  Time next_look_;
  Time next_poll_;
  std::atomic<bool> leaving_{false};
  bool leaves_in_haste_ = false;     // written before leaving_
  std::optional<at::Device> gpu_;    // of this thread
  std::atomic<int> chosen_gpu_{-1};  // by the training thread; -1: none yet, or the CPU
  std::latch adopted_{1};
  std::thread thread_;
};

}  // namespace mpzero
