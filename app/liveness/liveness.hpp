#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app/health/stop_request.hpp"
#include "app/liveness/link/rank_status.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/mpi/mpi_runtime.hpp"
#include "parallel/trace/flight_recorder.hpp"

namespace mpzero {

// Ends a run that cannot continue on every rank, within a bounded time, with one report that names the cause.
//
// A thread of each rank sends a heartbeat with the rank's step, and now and then its last collectives, to rank 0's
// thread every 1 to 3 seconds, over TCP and never through MPI. Rank 0's thread detects a rank that ended (its
// connection breaks), that stopped or whose machine went down (it is silent) or that met an error, and a run in which
// no rank has made progress for `stuck_after` seconds. decision/rank_watch.hpp has what it decides, and when. It then
// writes the report to failure.json in checkpoint_dir and to stderr, and every rank ends with kFailureExitCode. Ranks
// of the same machine kill processes of this job that cannot end by themselves. If rank 0 itself is gone, the next
// live rank takes over.
//
// The same thread ends the run, without a report, when it is asked to stop before its first step, or to stop
// immediately.
class Liveness {
 public:
  struct Options {
    std::filesystem::path checkpoint_dir;
    // Seconds; three times as long for set-up, the first step and checkpoints, but not for connecting the nodes. 0: no
    // limit, and silence is not a failure.
    double stuck_after = 0;
  };
  // Collective, and to be called as early as possible: nothing watches the ranks before. If they have not met within
  // stuck_after, or this rank is asked to stop meanwhile, the process ends. `mpi` and `stop` must outlive it. Where
  // ranks cannot reach each other over TCP, they do not watch each other.
  Liveness(parallel::MpiRuntime& mpi, const StopRequest& stop, const Options& options);
  // The rank leaves normally. Rank 0 waits for all others, and watches them meanwhile.
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // Why the ranks do not watch each other, as a sentence for the user. Empty: they do.
  const std::string& warning() const;
  // This rank trains on this device from now on. Call it once, before the device's collectives.
  void use_device(at::Device device);
  // Sets what this rank does from now on.
  void enter(RunPhase phase, int64_t step);
  // Records progress that no collective shows.
  void moved_on();
  parallel::FlightRecorder& recorder();

  // Asks these communicators for asynchronous errors, and aborts them when the run ends, until it is destroyed.
  class Watch {
   public:
    Watch(Liveness& liveness, std::vector<parallel::Communicator*> communicators);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    Liveness& liveness_;
  };

  // While it exists, the thread that ends the run calls `record` after it has written why: with "failed" or "stopped",
  // and the reason. It waits for that for seconds only. `record` owns what it uses.
  class EndRecord {
   public:
    EndRecord(Liveness& liveness, std::function<void(std::string_view status, std::string_view reason)> record);
    ~EndRecord();
    EndRecord(const EndRecord&) = delete;
    EndRecord& operator=(const EndRecord&) = delete;

   private:
    Liveness& liveness_;
  };

  // This rank alone has met an error: the report contains its text, and all ranks end. Returns only if the ranks do not
  // watch each other. `culprits`: the ranks that are known to be the cause. If all ranks know of the same error, each
  // may call this.
  void failed(const std::string& error, const std::vector<int>& culprits = {});
  // Records, for the report that the lack of progress will cause, that this rank's current operation takes too long.
  // False if the ranks do not watch each other, so that there will be no report.
  bool overdue(const std::string& message);

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace mpzero
