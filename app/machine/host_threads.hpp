#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

#include "parallel/mpi/mpi_runtime.hpp"
#include "parallel/optimizer/adamw_kernels.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// Returns the threads for optimizer updates on the host during GPU training: one per hardware thread of this rank's
// share of the cores near the GPU, with some cores left free. OMP_NUM_THREADS overrides the number of threads. If the
// launcher has bound the ranks, each rank uses its bound cores. Returns empty options if `device` is the CPU, because
// ATen's threads then run the updates. Collective.
parallel::HostUpdateOptions host_update_options(at::Device device, parallel::MpiRuntime& mpi);

// Returns the hardware threads of this rank's share of the cores that optimizer updates do not use. Checkpoint threads
// run on these hardware threads, so that checkpoints do not delay updates. Returns an empty vector if no hardware
// threads are left, or if threads are not bound. Collective.
std::vector<int> cores_for_checkpoints(at::Device device, parallel::MpiRuntime& mpi);

// Returns text such as "14 threads per rank (rank 0: hardware threads 2-15)".
std::string describe(const parallel::HostUpdateOptions& options);

// Returns a note if optimizer updates on the host do not use AVX-512; else std::nullopt. The results of all kernels are
// bit-identical.
std::optional<std::string> slower_update(parallel::HostKernel kernel);

// Returns true if this CPU has bf16 matmul instructions (AVX-512 BF16 or AMX).
bool multiplies_bf16();

// Returns a warning if the updates of all `local_size` ranks use less than a quarter of the host's `online` hardware
// threads, for example if the launcher binds each rank to one core. Returns std::nullopt if OMP_NUM_THREADS is set.
std::optional<std::string> few_threads(const parallel::HostUpdateOptions& options, int local_size, int online);
int online_hardware_threads();

}  // namespace mpzero
