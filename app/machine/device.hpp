#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero {

// What a rank trains on.
struct DeviceChoice {
  at::Device device;
  std::string warning;  // for the user, the same on all ranks; empty: nothing is odd
};

// The device this rank trains on, made current: one of the GPUs that CUDA shows to it, another for each rank of a
// machine (choose_gpu()), or the CPU. `requested`: "auto" (GPUs, unless no rank sees any), "cuda" or "cpu". Collective;
// throws UserError on all ranks.
DeviceChoice choose_device(const std::string& requested, parallel::MpiRuntime& mpi);

// Gives this rank's ATen threads their share of the cores that it may use, unless OMP_NUM_THREADS says how many.
void share_cores(const parallel::MpiRuntime& mpi);

// e.g. "2 x NVIDIA H200, 8 threads a rank" or "CPU, 2 ranks of 4 threads".
std::string describe_devices(const at::Device& device, const parallel::MpiRuntime& mpi);

// The most bytes so far that PyTorch's allocator took from the GPU for this rank, or its process from the machine.
int64_t peak_memory_bytes(const at::Device& device);
// The most bytes so far that this rank's tensors held of a GPU's memory.
int64_t peak_allocated_bytes(const at::Device& gpu);

}  // namespace mpzero
