#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

#include "parallel/mpi/mpi_runtime.hpp"
#include "parallel/optimizer/adamw_kernels.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// Threads that update states on the host while a GPU trains: one per hardware thread of this rank's share of the cores
// near its GPU, except some cores that stay free, or the number in OMP_NUM_THREADS. Ranks bound to cores use those
// cores. Empty on the CPU, where the process's own threads update. Collective.
parallel::HostUpdateOptions host_update_options(at::Device device, parallel::MpiRuntime& mpi);

// Hardware threads of this rank's share that the updates do not use, for threads that write checkpoints: an update
// waits for its slowest thread, each of which has its own core. Empty if none are left, or if threads are not bound.
// Collective.
std::vector<int> cores_for_checkpoints(at::Device device, parallel::MpiRuntime& mpi);

// e.g. "14 threads per rank, on rank 0 on hardware threads 2-15".
std::string describe(const parallel::HostUpdateOptions& options);

// A note for the user if states on the host are not updated with the fastest instructions; else std::nullopt. All
// kernels are bit-identical.
std::optional<std::string> slower_update(parallel::HostKernel kernel);

// Whether this CPU has bf16 matmul instructions: AVX-512 BF16 or AMX.
bool multiplies_bf16();
// A note for the user if `dtype` is slow on this CPU; else std::nullopt.
std::optional<std::string> slower_type(const std::string& dtype, bool multiplies_bf16);

// A warning if the updates of all `local_size` ranks use less than a quarter of the host's hardware threads, `online`,
// as under a launcher that binds each rank to a core. None if OMP_NUM_THREADS is set.
std::optional<std::string> few_threads(const parallel::HostUpdateOptions& options, int local_size, int online);
int online_hardware_threads();

}  // namespace mpzero
