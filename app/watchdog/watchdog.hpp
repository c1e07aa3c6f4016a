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

// Terminates this rank if the run cannot continue, after writing evidence of the rank's state.
//
// On each rank, a thread monitors the rank's progress, asynchronous NCCL and CUDA errors, and the other ranks of the
// host (HostBoard). If the rank fails, makes no progress within RankActivity's limit, or detects that another rank has
// exited, the thread writes evidence (EvidenceWriter) and terminates the process. The launcher then terminates all
// other ranks. Ranks do not communicate about failures: `mpzero failure` determines the cause from the evidence.
//
// Evidence of this rank. Final evidence is never replaced, except to add the condition of the host.
//
//   state       | event                                   | then
//   ------------|-----------------------------------------|-------------------------------------------------------
//   open        | stop request, then no progress          | provisional evidence; stays open
//   open        | immediate stop; stop before first step  | the process ends without evidence
//   open        | error, stuck, or a dead rank            | final evidence, error line; the process ends
//   open        | another rank has failed                 | final evidence; the process ends
//   open        | error of all ranks (report_shared)      | rank 0: final evidence, error line; `reported`
//   reported    | stop request                            | ignored; the rank ends normally
//   reported    | any other event that ends the process   | the process ends with the status of the reported error
class Watchdog {
 public:
  struct Options {
    std::filesystem::path checkpoint_dir;
    double stuck_after = 0;  // seconds; 0: no limit
  };
  // Collective. The watchdog should be created early, because earlier hangs are not detected. Ends the process if the
  // ranks do not connect within stuck_after, or on a stop request. `mpi` and `stop` must outlive the watchdog.
  Watchdog(parallel::MpiRuntime& mpi, const StopRequest& stop, const Options& options);
  // Collective unless an exception is active: waits for the other ranks, so that all ranks end normally.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Returns a warning if the ranks of a host cannot read each other's state, else an empty string.
  const std::string& warning() const { return warning_; }
  // Starts monitoring a device. Must be called once, before the first collective on the device.
  void use_device(at::Device device) { poll_.use_device(device); }
  void enter(RunPhase phase, int64_t step) { activity_.enter(phase, step); }
  // Reports progress outside of collectives.
  void moved_on() { activity_.moved_on(); }
  parallel::FlightRecorder& recorder() { return activity_.recorder(); }

  // Polls communicators for asynchronous errors during the lifetime of this object.
  class Watch {
   public:
    Watch(Watchdog& watchdog, std::vector<parallel::Communicator*> communicators);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    Watchdog& watchdog_;
  };

  // Registers the callback `record`. The destructor unregisters the callback, except during stack unwinding. The thread
  // that ends the run calls `record` with "failed" or "stopped" and the reason. `record` must own its data, and must be
  // a no-op if the end is already recorded.
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

  // Reports an error that all ranks throw; the ranks then end normally. Rank 0 prints the error and, unless it is a
  // user error, writes evidence.
  void report_shared(const std::string& error, int exit_status, const std::vector<int>& culprits);
  // Terminates this rank after writing evidence. Thread-safe. `error`: one sentence. `culprits`: ranks at fault.
  [[noreturn]] void fail(Why why, const std::string& error, int exit_status, const std::vector<int>& culprits = {});

 private:
  void meet(const Options& options);
  void take_turn();
  void handle_stop();
  void follow_neighbors();
  Evidence evidence(Why why, std::string error, int exit_status, std::vector<int> culprits = {}) const;
  void record_end(std::string_view status, const std::string& reason);
  // `claims`: this rank found the failure. False: another rank failed first and reports the failure.
  [[noreturn]] void end_failed(Evidence evidence, bool claims);
  // Ends the run without a failure, unless another rank of this host is already ending the run.
  void end_stopped(int exit_status);
  void write_stop_json() const;
  // Must be called before the process is ended. Does not return if another thread is already ending the process. Ends
  // the process if an error of all ranks has been reported.
  void begin_end();

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
  bool wrote_signal_ = false;

  std::mutex record_mutex_;  // guards record_
  std::function<void(std::string_view, std::string_view)> record_;
  std::mutex end_mutex_;         // guards reported_; held by the thread that ends the process
  std::optional<int> reported_;  // exit status of an error of all ranks
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};

}  // namespace mpzero
