// failing_rank error|shared_error|shared_mistake|stale_file|gpu_error|nccl_error|nccl_lost|hang|leave|late|never|
// mistake|absent|no_efa|other_network|unconnected|alone RANK SECONDS FOLDER: ranks that sum numbers repeatedly, watched
// as in training. At the tenth sum RANK meets an error (error), all ranks meet the same error or user error after a
// request to stop, and RANK then hangs while it releases its state (shared_error, shared_mistake; RANK -1: none), all
// ranks learn that a file of RANK is stale (stale_file), RANK sleeps forever while its heartbeat continues (hang), or
// all ranks leave normally (leave). With late RANK leaves 7 s after the others and makes progress meanwhile; with never
// it sleeps forever instead. With mistake RANK ends before the first sum, like a run with a user error; with absent it
// never comes to meet the others. Before the sums the nodes are connected: with no_efa RANK's network does not start,
// which its peers only see as their own errors; with other_network all ranks learn that RANK has another network; with
// unconnected no rank is ever answered; with alone only RANK is not answered. gpu_error is error with sums on the
// ranks' GPUs; with nccl_error RANK reports an error, and with nccl_lost it is killed, after the others have met NCCL's
// error. HANGING_PATH (hanging_file.cpp) applies to RANK alone. For tests/e2e/test_failures.py.

#include <ATen/ops/ones.h>
#include <c10/cuda/CUDAFunctions.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "app/health/stop_request.hpp"
#include "app/train/watched_run.hpp"
#include "app/watchdog/watchdog.hpp"
#include "base/error.hpp"
#include "parallel/comm/forwarding_communicator.hpp"
#include "parallel/comm/mpi_communicator.hpp"
#include "parallel/comm/nccl_communicator.hpp"
#include "parallel/network/network_start.hpp"

namespace mpzero {
namespace {

// Fails like parallel::prove_network(), which needs GPUs.
void connect(parallel::MpiRuntime& mpi, Watchdog& watchdog, const std::string& what, int which, bool overdue) {
  watchdog.enter(RunPhase::kNetwork, 0);
  const bool here = mpi.rank() == which;
  if (what == "no_efa") {
    if (here) throw parallel::NetworkFailure("NCCL failed to initialize EFA here", ErrorScope::kThisRank, {which});
    throw Failure("ncclCommInitRankConfig failed: a remote process has exited");
  }
  if (what == "other_network") {
    throw parallel::NetworkFailure("NCCL uses \"Socket\" instead of EFA", ErrorScope::kAllRanks, {which});
  }
  if (what == "unconnected" || (what == "alone" && here)) {
    std::puts("connects");
    std::fflush(stdout);
    if (overdue) watchdog.fail(Why::kStuck, "NCCL has had no answer over \"Libfabric\"", kFailureExitCode);
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
  if (what == "alone") mpi.barrier();
  watchdog.enter(RunPhase::kSetUp, 0);
}

std::unique_ptr<parallel::Communicator> open_communicator(parallel::MpiRuntime& mpi, at::Device device) {
  if (device.is_cuda()) return std::make_unique<parallel::NcclCommunicator>(mpi);
  return std::make_unique<parallel::MpiCommunicator>(mpi);
}

// As in a last save that takes long on this rank: for some seconds in which it moves on, or forever.
void linger(Watchdog& watchdog, bool moves) {
  constexpr int kTurns = 700;
  for (int i = 0; !moves || i < kTurns; ++i) {
    if (moves) watchdog.moved_on();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

int sum(parallel::MpiRuntime& mpi, Watchdog& watchdog, const std::string& what, int which, at::Device device) {
  constexpr int kSums = 10;
  parallel::RecordedCommunicator sums(open_communicator(mpi, device), watchdog.recorder().channel("sums"));
  const Watchdog::Watch watch(watchdog, {&sums});
  const at::Tensor numbers = at::ones({1000}, device);
  if (what == "mistake") {
    if (mpi.rank() == which) throw UserError("a mistake of the user's");
    sums.all_reduce_sum(numbers)->wait();
  }
  for (int step = 1; step < kSums; ++step) {
    watchdog.enter(RunPhase::kTraining, step);
    sums.all_reduce_sum(numbers)->wait();
  }
  watchdog.enter(RunPhase::kTraining, kSums);
  if (what == "leave") return EXIT_SUCCESS;
  if (what == "late" || what == "never") {
    if (mpi.rank() == which) linger(watchdog, /*moves=*/what == "late");
    std::puts("leaves");
    std::fflush(stdout);
    return EXIT_SUCCESS;
  }
  if (what == "stale_file") {
    run_on_all_ranks(mpi, [&] {
      if (mpi.rank() == which) throw Failure("cannot read", ErrorScope::kThisRank, ESTALE);
    });
  }
  if (what.starts_with("shared_")) std::raise(SIGTERM);
  if (what == "shared_error") throw Failure("cannot save", ErrorScope::kAllRanks);
  if (what == "shared_mistake") throw UserError("cannot save", ErrorScope::kAllRanks);
  if (mpi.rank() == which) {
    if (what.starts_with("nccl_")) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (what == "nccl_lost") std::raise(SIGKILL);
    if (what.ends_with("error")) throw Failure("the disk has said something odd.");
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
  if (what.starts_with("nccl_")) throw parallel::CommunicatorFailure("ncclAllReduce failed: remote process exited");
  sums.all_reduce_sum(numbers)->wait();
  if (device.is_cuda()) c10::cuda::device_synchronize();
  return EXIT_SUCCESS;
}

// The state of a run, which the rank releases after an error.
struct State {
  bool hangs = false;
  ~State() {
    while (hangs) pause();
  }
};

int run(parallel::MpiRuntime& mpi, const std::string& what, int which, double stuck_after, const char* folder) {
  at::Device device(at::kCPU);
  if (what == "gpu_error") {
    device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(mpi.local_rank()));
    c10::cuda::set_device(device.index());
  }
  if (mpi.rank() != which) unsetenv("HANGING_PATH");
  const StopRequest stop;
  if (what == "absent") {
    if (mpi.rank() == which) std::this_thread::sleep_for(std::chrono::hours(1));
    std::puts("meets");
    std::fflush(stdout);
  }
  Watchdog watchdog(mpi, stop, {.checkpoint_dir = folder, .stuck_after = stuck_after});
  watchdog.use_device(device);
  const State state(/*hangs=*/what.starts_with("shared_") && mpi.rank() == which);
  return run_watched(watchdog, [&] {
    connect(mpi, watchdog, what, which, /*overdue=*/stuck_after < 600);
    return sum(mpi, watchdog, what, which, device);
  });
}

}  // namespace
}  // namespace mpzero

int main(int argc, char** argv) {
  mpzero::parallel::MpiRuntime mpi(&argc, &argv, mpzero::parallel::MpiThreads::kSeveral);
  if (argc != 5) return EXIT_FAILURE;
  try {
    return mpzero::run(mpi, argv[1], std::atoi(argv[2]), std::atof(argv[3]), argv[4]);
  } catch (const mpzero::ReportedError& error) {
    return error.exit_code;
  } catch (const mpzero::Error& error) {
    if (error.scope() == mpzero::ErrorScope::kAllRanks) return error.exit_code();
    mpi.abort(error.exit_code());
  }
}
