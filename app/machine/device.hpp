#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/rank_failure.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero {

struct DeviceChoice {
  at::Device device;
  std::string warning;  // warning for the user, identical on all ranks; may be empty
};

// Thrown on all ranks if GPUs of a host are missing or broken. `culprits`: ranks without a working GPU.
class DeviceFailure final : public RankFailure {
 public:
  using RankFailure::RankFailure;
};

// Returns kSeveral if the process is expected to train on the CPU, so that communication overlaps with computation,
// else kOne. `requested`: see choose_device(). The result may differ between hosts with and without NVIDIA's driver;
// MpiRuntime chooses the same mode on all ranks.
parallel::MpiThreads mpi_threads(const std::string& requested);

// Chooses this rank's device and makes it current: the CPU, or a visible GPU that no other rank of the host uses
// (choose_gpu()). Initializes CUDA on the GPU. `requested`: "auto" (GPUs if any rank sees a GPU), "cuda" or "cpu".
// Collective. Throws on all ranks: DeviceFailure if a GPU assigned by Slurm fails, or if CUDA reports a broken GPU;
// UserError if the user can choose other GPUs or the CPU.
DeviceChoice choose_device(const std::string& requested, parallel::MpiRuntime& mpi);

// Returns "cpu" or the GPU's name, e.g. "NVIDIA H200".
std::string device_name(const at::Device& device);

// Returns text such as "2 x NVIDIA H200, 8 threads per rank" or "CPU, 2 ranks of 4 threads".
std::string describe_devices(const at::Device& device, const parallel::MpiRuntime& mpi);

// Returns the peak memory, in bytes, reserved by PyTorch's CUDA caching allocator; on the CPU, the peak resident memory
// of the process.
int64_t peak_memory_bytes(const at::Device& device);
// Returns the peak memory, in bytes, allocated to tensors; on the CPU, the peak since parallel::use_tensor_memory() was
// called.
int64_t peak_allocated_bytes(const at::Device& device);

}  // namespace mpzero
