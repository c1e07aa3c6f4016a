#include "parallel/comm/mpi_communicator.hpp"
#include "parallel/mpi/mpi_runtime.hpp"
#include "tests/parallel/collective_checks.hpp"
#include "tests/parallel/random_collectives.hpp"

namespace mpzero::parallel {
namespace {

// As MPI is started for runs on GPUs.
MpiRuntime& mpi_of_one_thread() {
  static MpiRuntime runtime(nullptr, nullptr, MpiThreads::kOne);
  return runtime;
}

}  // namespace

TEST_CASE("if one thread uses MPI, collectives complete before the call returns, with the same bits") {
  MpiRuntime& mpi = mpi_of_one_thread();
  CHECK_FALSE(mpi.lacks_threads());
  CHECK_FALSE(mpi.communication_thread().runs_beside());
  for (const bool around_ring : {false, true}) {
    MpiCommunicator communicator(mpi, around_ring);
    check_collectives(communicator, at::kCPU);
  }
  for (unsigned seed = 1; seed <= 3; ++seed) {
    INFO("seed " << seed);
    RandomCollectives(mpi, seed, /*two_levels=*/mpi.world_size() % 2 == 0).run(/*collectives=*/20);
  }
}

}  // namespace mpzero::parallel
