#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero {

// The device that a rank trains on.
struct DeviceChoice {
  at::Device device;
  std::string warning;  // for the user, the same on all ranks; empty: no warning
};

// GPUs that a host should have do not work; `culprits`: the ranks that cannot use them. Thrown on all ranks.
class DeviceFailure final : public Error {
 public:
  DeviceFailure(const std::string& message, std::vector<int> culprits)
      : Error(message, ErrorScope::kAllRanks), culprits_(std::move(culprits)) {}
  int exit_code() const override { return kFailureExitCode; }
  const std::vector<int>& culprits() const { return culprits_; }

 private:
  std::vector<int> culprits_;
};

// Threads of this process that will use MPI: several if the process is expected to train on the CPU, so that
// communication overlaps with computation. `requested`: see choose_device(). Hosts differ if only some have NVIDIA's
// driver: MpiRuntime makes the ranks agree.
parallel::MpiThreads mpi_threads(const std::string& requested);

// Chooses the device this rank trains on and makes it current: one of the GPUs that CUDA shows to it, a different one
// for each rank of a machine (choose_gpu()), or the CPU. `requested`: "auto" (GPUs, unless no rank sees any), "cuda" or
// "cpu". Initializes CUDA on a GPU. Collective; throws on all ranks: DeviceFailure if a GPU that Slurm has
// assigned to a host fails, or CUDA reports one as broken; UserError if the user can choose other GPUs, or the CPU.
DeviceChoice choose_device(const std::string& requested, parallel::MpiRuntime& mpi);

// "cpu" or the GPU's name, e.g. "NVIDIA H200".
std::string device_name(const at::Device& device);

// e.g. "2 x NVIDIA H200, 8 threads per rank" or "CPU, 2 ranks of 4 threads".
std::string describe_devices(const at::Device& device, const parallel::MpiRuntime& mpi);

// Peak bytes that PyTorch's allocator has reserved on the GPU for this rank; on the CPU, peak resident bytes of its
// process.
int64_t peak_memory_bytes(const at::Device& device);
// Peak bytes of device memory allocated to this rank's tensors; on the CPU, to tensors since
// parallel::use_tensor_memory().
int64_t peak_allocated_bytes(const at::Device& device);

}  // namespace mpzero
