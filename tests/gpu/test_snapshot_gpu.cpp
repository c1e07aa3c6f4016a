#include <c10/cuda/CUDAFunctions.h>

#include "parallel/comm/nccl_communicator.hpp"
#include "tests/app/snapshot_checks.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero {

TEST_CASE("a snapshot of states on the GPU, on the host and on both is the state at its beginning") {
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
        check_snapshots(
            {.stage = stage, .optimizer = parallel::Placement::kHost, .host_ratio = ratio, .clipping = clipping},
            device, parameters, gradients, parallel::mpi());
      }
    }
  }
}

}  // namespace mpzero
