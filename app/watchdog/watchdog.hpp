#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "app/health/stop_request.hpp"
#include "app/watchdog/device_poll.hpp"
#include "app/watchdog/evidence.hpp"
#include "app/watchdog/host_board.hpp"
#include "app/watchdog/rank_activity.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero {

// Ends this rank if the run cannot continue, and leaves evidence of the rank's state.
//
// A thread of each rank monitors the rank's progress, asynchronous errors of NCCL and CUDA, and the other ranks of the
// host (HostBoard). If the rank fails, makes no progress for RankActivity's limit, or learns that another rank has
// ended, it writes evidence (EvidenceWriter) and ends the process without waiting: the launcher ends the ranks of other
// hosts. The ranks do not communicate about failures: `mpzero failure` finds the cause in the evidence afterwards.
//
// The same thread ends the run, without evidence, when it is asked to stop before its first step, or to stop
// immediately.
class Watchdog {
 public:
  struct Options {
    std::filesystem::path checkpoint_dir;
    double stuck_after = 0;  // seconds; 0: no limit
  };
  // Collective. Call it as early as possible: earlier hangs are not detected. If the ranks have not connected within
  // stuck_after, or this rank is asked to stop meanwhile, the process ends. `mpi` and `stop` must outlive it.
  Watchdog(parallel::MpiRuntime& mpi, const StopRequest& stop, const Options& options);
  // This rank leaves. Without an exception, it waits for the others, so that they can end normally, too: collective.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // A sentence for the user if the ranks of this host cannot see each other's state, else empty.
  const std::string& warning() const { return warning_; }
  // Monitors this device from now on. Call once, before the device's first collective.
  void use_device(at::Device device) { poll_.use_device(device); }
  void enter(RunPhase phase, int64_t step) { activity_.enter(phase, step); }
  // Reports progress that no collective shows.
  void moved_on() { activity_.moved_on(); }
  parallel::FlightRecorder& recorder() { return activity_.recorder(); }

  // Polls these communicators for asynchronous errors until it is destroyed.
  class Watch {
   public:
    Watch(Watchdog& watchdog, std::vector<parallel::Communicator*> communicators);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    Watchdog& watchdog_;
  };

  // Until it is destroyed without an exception, the thread that ends the run calls `record` after reporting the cause,
  // with "failed" or "stopped" and the reason. `record` owns its data and is a no-op if the end is already recorded.
  class EndRecord {
   public:
    EndRecord(Watchdog& watchdog, std::function<void(std::string_view status, std::string_view reason)> record);
    ~EndRecord();
    EndRecord(const EndRecord&) = delete;
    EndRecord& operator=(const EndRecord&) = delete;

   private:
    Watchdog& watchdog_;
    int exceptions_;
  };

  // Ends this rank, from any thread. `error`: one sentence; `culprits`: the ranks that are known to be the cause.
  [[noreturn]] void fail(Why why, const std::string& error, int exit_status, const std::vector<int>& culprits = {});

 private:
  void meet(const Options& options);
  void run();
  void take_turn();
  void handle_stop();
  void follow_neighbors();
  Evidence evidence(Why why, std::string error, int exit_status, std::vector<int> culprits = {}) const;
  std::vector<Neighbor> neighbors() const;
  void add_host_condition(const Evidence& evidence) const;
  EvidenceWriter::Outcome write(const Evidence& evidence, bool claims) const;
  void record_end(std::string_view status, const std::string& reason);
  [[noreturn]] void end_failed(Evidence evidence);
  // Ends this rank because another rank has failed.
  [[noreturn]] void end_as_victim(const std::string& error, int exit_status);
  // Ends the run without a failure, unless another rank of this host does so already.
  void end_stopped(int exit_status);
  void write_stop_json() const;
  // Exits after the neighbors that announced a status: the launcher returns the first exit status that it sees.
  [[noreturn]] void end_after_neighbors(int exit_status);

  parallel::MpiRuntime& mpi_;
  const StopRequest& stop_;
  const std::filesystem::path checkpoint_dir_;
  StartRanks start_;
  EvidenceWriter writer_;
  RankActivity activity_;
  parallel::FlightRecorder::Channel& control_;
  DevicePoll poll_;
  std::optional<HostBoard> board_;
  std::string warning_;

  RankActivity::Report report_;
  std::vector<Neighbor> neighbors_;
  RankActivity::Clock::time_point next_look_;
  std::optional<RankActivity::Clock::time_point> lost_since_;
  std::atomic<bool> wrote_signal_{false};

  std::mutex record_mutex_;
  std::function<void(std::string_view, std::string_view)> record_;  // guarded by record_mutex_
  std::recursive_mutex end_mutex_;                                  // held by the thread that ends the process
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};

}  // namespace mpzero
