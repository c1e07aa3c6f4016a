#include <c10/cuda/CUDAFunctions.h>

#include "parallel/comm/nccl_communicator.hpp"
#include "tests/app/snapshot_checks.hpp"
#include "tests/gpu/absent_peers.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero {

TEST_CASE("a snapshot of states on the GPU, on the host and on both contains the state at its start") {
  if (!has_gpu(parallel::mpi().local_size())) return;
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(parallel::mpi().local_rank()));
  c10::cuda::set_device(device.index());
  parallel::NcclCommunicator parameters(parallel::mpi());
  parallel::NcclCommunicator gradients(parallel::mpi());
  for (const int stage : {0, 2, 3}) {
    check_snapshots({.stage = stage}, device, parameters, gradients, parallel::mpi());
    check_snapshots({.stage = stage, .moment_dtype = at::kBFloat16}, device, parameters, gradients, parallel::mpi());
    for (const double ratio : {1.0, 0.5}) {
      for (const double clipping : {0.0, 1.0}) {
        SnapshotRun run{.stage = stage, .optimizer = parallel::Placement::kHost, .host_ratio = ratio};
        run.clipping = clipping;
        check_snapshots(run, device, parameters, gradients, parallel::mpi());
        run.moment_dtype = at::kBFloat16;
        check_snapshots(run, device, parameters, gradients, parallel::mpi());
      }
    }
  }
}

TEST_CASE("a snapshot on a GPU contains carried state at its start while training continues") {
  if (!has_gpu(parallel::mpi().local_size())) return;
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(parallel::mpi().local_rank()));
  c10::cuda::set_device(device.index());
  SingleProcess one;
  for (const int stage : {1, 2, 3}) {
    for (const int ranks_per_node : {1, 2}) {
      for (const bool on_host : {false, true}) {
        const SnapshotRun run{.stage = stage,
                              .optimizer = on_host ? parallel::Placement::kHost : parallel::Placement::kDevice,
                              .clipping = 0,
                              .compression = {.gradient_bits = on_host ? 4 : 8, .weights = true}};
        parallel::AbsentPeers node(0, ranks_per_node, 1), place(0, 2, 2);
        parallel::AbsentPeers gradient_node(0, ranks_per_node, 3), gradient_place(0, 2, 4);
        check_snapshots(run, device, {node, place}, {gradient_node, gradient_place}, one);
        c10::cuda::device_synchronize();
      }
    }
  }
}

}  // namespace mpzero
