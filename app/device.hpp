#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "parallel/mpi_runtime.hpp"

namespace mpzero {

// The device this rank trains on, made current: its GPU by local rank, or the CPU. `requested`: "auto" (GPUs where
// every machine has one for each of its ranks, the CPU where no machine has any), "cuda" or "cpu". Collective; throws
// UserError on all ranks.
at::Device choose_device(const std::string& requested, parallel::MpiRuntime& mpi);

// Gives this rank's ATen threads their share of the cores that it may use, unless OMP_NUM_THREADS says how many.
void share_cores(const parallel::MpiRuntime& mpi);

// e.g. "2 x NVIDIA H200, 8 threads a rank" or "CPU, 2 ranks of 4 threads".
std::string describe_devices(const at::Device& device, const parallel::MpiRuntime& mpi);

// The most bytes so far that PyTorch's allocator took from the GPU for this rank, or its process from the machine.
int64_t peak_memory_bytes(const at::Device& device);
// The most bytes so far that this rank's tensors held of a GPU's memory.
int64_t peak_allocated_bytes(const at::Device& gpu);

}  // namespace mpzero
