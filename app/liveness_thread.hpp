#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "app/control_channel.hpp"
#include "app/liveness.hpp"
#include "app/rank_monitor.hpp"

namespace mpzero {

// What Liveness does beside training.
class Liveness::Thread {
 public:
  using Clock = RankMonitor::Clock;
  using Time = RankMonitor::Time;

  Thread(parallel::MpiRuntime& mpi, const StopRequest& stop, Options options);
  ~Thread();
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  // From the thread that trains.
  void enter(RunPhase phase, int64_t step);
  void moved_on() { ticks_.fetch_add(1, std::memory_order_relaxed); }
  void watch(std::vector<parallel::Communicator*> communicators);
  void failed(const std::string& error);

  parallel::FlightRecorder recorder;
  std::string warning;

 private:
  // Whether this rank is the one that all report to.
  enum class Role : uint8_t { kReports, kMonitors };
  struct Peer {
    LineConnection connection;
    int rank = -1;  // until it has said who it is
    bool open = true;
  };

  std::string meet(parallel::MpiRuntime& mpi);
  bool connect_to_monitor(std::chrono::milliseconds limit);
  void run();
  void wait_for_news(Time until);
  void beat(Time now);
  RankStatus own_status(Time now);
  std::optional<std::string> device_error();
  void look_for_failures(Time now);
  void handle_stop(Time now);
  void ask_to_stop(int exit_code);
  void read_uplink(Time now);
  void read_peers(Time now);
  void hear(Peer& peer, const std::string& line, Time now);
  void monitor_is_gone(RankRecord::State how, Time now);
  void take_over(Time now);
  // Empty where there is none, or its disk does not answer.
  std::string newest_checkpoint() const;
  void conclude();
  void broadcast(const std::string& line);
  [[noreturn]] void end_all(int exit_code);
  [[noreturn]] void end(int exit_code);
  void leave();

  const StopRequest& stop_;
  Options options_;
  int rank_;
  double silent_after_;
  std::vector<RankIdentity> ranks_;
  std::string token_;  // tells ranks of this run from whoever else connects
  bool connected_ = false;

  // Shared with the thread that trains.
  std::atomic<RunPhase> phase_{RunPhase::kSetUp};
  std::atomic<int64_t> step_{0};
  std::atomic<int64_t> ticks_{0};
  std::atomic<bool> leaving_{false};
  bool leaves_in_haste_ = false;  // written before leaving_
  std::mutex mutex_;              // of the two below
  std::optional<std::string> error_;
  std::vector<parallel::Communicator*> communicators_;

  // Of the thread alone.
  std::optional<Listener> listener_;
  Role role_ = Role::kReports;
  int monitor_rank_ = 0;
  bool monitor_watches_ = true;
  std::optional<LineConnection> uplink_;
  std::vector<Peer> peers_;
  std::optional<RankMonitor> monitor_;
  Time last_pulse_;
  Time last_beat_;
  Time last_motion_;
  int64_t seen_motion_ = -1;
  bool said_failed_ = false;
  bool asked_ = false;  // all ranks for a word, since the monitor is alarmed
  std::optional<int> stop_code_;
  std::optional<Time> stop_asked_;
  std::optional<Time> error_ends_run_;  // since a rank has left with an error of its own, or all have
  std::optional<Time> taken_over_;      // when another rank became the monitor
  std::thread thread_;
};

}  // namespace mpzero
