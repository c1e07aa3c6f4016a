#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "app/health/stop_request.hpp"
#include "app/liveness/link/rank_status.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/mpi/mpi_runtime.hpp"
#include "parallel/trace/flight_recorder.hpp"

namespace mpzero {

// Sees to it that a run that cannot go on ends on every rank, within a bounded time, with one report of who held it up.
//
// A thread of each rank sends a heartbeat with the rank's step and last collectives to rank 0's, over TCP and never
// through MPI, each second. Rank 0's thread notices a rank that ended (its connection breaks), that stopped or whose
// machine went down (it is silent), that met an error, or that no rank's training has moved on for `stuck_after`
// seconds. It then writes the report to stderr and to failure.json in checkpoint_dir, and every rank ends with
// kFailureExitCode; processes of this job that cannot end by themselves are killed by ranks of the same machine. If
// rank 0 is the one that is gone, the next rank that lives takes its part.
//
// The same thread ends the run, without a report, when it is asked to stop before its first step, or to stop at once.
class Liveness {
 public:
  struct Options {
    std::filesystem::path checkpoint_dir;
    // Seconds; three times as long for setting up, the first step, and checkpoints, but not for connecting the nodes.
    // 0: for ever, and silence says nothing.
    double stuck_after = 0;
    at::Device device = at::kCPU;
  };
  // Collective. `mpi` and `stop` outlive it. A set-up where ranks cannot reach each other over TCP goes without.
  Liveness(parallel::MpiRuntime& mpi, const StopRequest& stop, Options options);
  // The rank leaves in order.
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // Why the ranks do not watch each other, for the user; empty: they do.
  const std::string& warning() const;
  // What this rank does from now on.
  void enter(RunPhase phase, int64_t step);
  // Something has moved on that no collective shows.
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

  // This rank has met an error alone: the report gives its words and all ranks end. Returns only where the ranks do not
  // watch each other.
  // `culprits`: the ranks that are known to be the cause; where all ranks have learnt of the same error, each may say
  // so.
  void failed(const std::string& error, const std::vector<int>& culprits = {});
  // What this rank does takes too long, in its own words, for the report of it that the ranks' standing still brings
  // about. False where the ranks do not watch each other, so that none will come.
  bool overdue(const std::string& words);

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace mpzero
