#include "parallel/comm/mpi_communicator.hpp"
#include "tests/app/snapshot_checks.hpp"
#include "tests/parallel/mpi_for_tests.hpp"
#include "tests/parallel/virtual_nodes.hpp"

namespace mpzero {

TEST_CASE("a snapshot contains the state at its start while training continues") {
  parallel::MpiCommunicator parameters(parallel::mpi());
  parallel::MpiCommunicator gradients(parallel::mpi());
  for (const int stage : {0, 2, 3}) {
    for (const at::ScalarType moments : {at::kFloat, at::kBFloat16}) {
      SnapshotRun run{.stage = stage, .moment_dtype = moments};
      check_snapshots(run, at::kCPU, parameters, gradients, parallel::mpi());
      run.optimizer = parallel::Placement::kHost;
      run.host_threads = 2;
      for (const double clipping : {0.0, 1.0}) {
        run.clipping = clipping;
        check_snapshots(run, at::kCPU, parameters, gradients, parallel::mpi());
      }
    }
  }
}

TEST_CASE("a snapshot contains carried state at its start while training continues") {
  if (parallel::mpi().world_size() == 1) return;
  parallel::VirtualNodes parameters(1), gradients(1);
  for (const parallel::Compression& compression : {parallel::Compression{.gradient_bits = 8, .weights = true},
                                                   parallel::Compression{.gradient_bits = 4, .weights = false},
                                                   parallel::Compression{.gradient_bits = 0, .weights = true}}) {
    for (const int stage : {1, 3}) {
      for (const int host_threads : {0, 2}) {
        SnapshotRun run{.stage = stage, .host_threads = host_threads, .clipping = 0, .compression = compression};
        if (host_threads > 0) run.optimizer = parallel::Placement::kHost;
        check_snapshots(run, at::kCPU, parameters.levels(), gradients.levels(), parallel::mpi());
      }
    }
  }
}

}  // namespace mpzero
