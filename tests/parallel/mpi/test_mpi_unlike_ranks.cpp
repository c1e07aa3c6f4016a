#include "base/collectives.hpp"
#include "base/environment.hpp"
#include "parallel/comm/mpi_communicator.hpp"
#include "parallel/mpi/late_sum.hpp"
#include "parallel/mpi/mpi_runtime.hpp"
#include "tests/parallel/collective_checks.hpp"

namespace mpzero::parallel {
namespace {

// As ranks of hosts that train on the CPU start MPI, but for the last rank: its host has a driver for GPUs.
MpiRuntime& mpi_of_unlike_ranks() {
  const int rank = std::stoi(process_environment("OMPI_COMM_WORLD_RANK").value());
  const int last = std::stoi(process_environment("OMPI_COMM_WORLD_SIZE").value()) - 1;
  static MpiRuntime runtime(nullptr, nullptr, rank == last ? MpiThreads::kOne : MpiThreads::kSeveral);
  return runtime;
}

}  // namespace

TEST_CASE("ranks that request different numbers of threads use one, and join all calls of the control plane") {
  MpiRuntime& mpi = mpi_of_unlike_ranks();
  REQUIRE(mpi.world_size() > 1);
  CHECK_FALSE(mpi.communication_thread().runs_beside());
  // What is missing is not the MPI's.
  CHECK_FALSE(mpi.lacks_threads());
  mpi.barrier();
  CHECK(sum(mpi, mpi.rank()) == mpi.world_size() * (mpi.world_size() - 1) / 2);
  CHECK(mpi.split(0)->world_size() == mpi.world_size());
  CHECK(mpi.this_machine()->world_size() == mpi.world_size());
  {
    LateSum votes;
    CHECK(votes.next(1) == 0);
    CHECK(votes.next(1) == mpi.world_size());
  }
  MpiCommunicator communicator(mpi);
  check_collectives(communicator, at::kCPU);
}

}  // namespace mpzero::parallel
