#include "parallel/comm/mpi_communicator.hpp"
#include "tests/app/snapshot_checks.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero {

TEST_CASE("a snapshot is the state at its begin while training goes on") {
  parallel::MpiCommunicator parameters(parallel::mpi());
  parallel::MpiCommunicator gradients(parallel::mpi());
  for (const int stage : {0, 2, 3}) {
    check_snapshots({.stage = stage}, at::kCPU, parameters, gradients, parallel::mpi());
    for (const double clipping : {0.0, 1.0}) {
      check_snapshots(
          {.stage = stage, .optimizer = parallel::Placement::kHost, .host_threads = 2, .clipping = clipping}, at::kCPU,
          parameters, gradients, parallel::mpi());
    }
  }
}

}  // namespace mpzero
