#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

#include "parallel/mpi/mpi_runtime.hpp"
#include "parallel/optimizer/adamw_kernels.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// The threads that update states on the host while a GPU trains: one for each hardware thread of this rank's share of
// the cores near its GPU, except some cores that stay free, or the number in OMP_NUM_THREADS. Ranks that are bound to
// cores use those. Empty on the CPU, where the process's own threads update. Collective.
parallel::HostUpdateOptions host_update_options(at::Device device, parallel::MpiRuntime& mpi);

// The hardware threads of this rank's share that the threads above do not use, for threads that write checkpoints: an
// update waits for the slowest of its threads, each of which has its own core. Empty if none are left, or if nothing is
// bound. Collective.
std::vector<int> cores_for_checkpoints(at::Device device, parallel::MpiRuntime& mpi);

// e.g. "14 threads a rank, on rank 0 on hardware threads 2-15".
std::string describe(const parallel::HostUpdateOptions& options);

// A note for the user about the instructions that update states on the host; std::nullopt if they are the fastest. All
// of them give the same bits.
std::optional<std::string> slower_update(parallel::HostKernel kernel);

// Whether this CPU has instructions for products in bf16: AVX-512 BF16 or AMX.
bool multiplies_bf16();
// A note for a run on the CPU; std::nullopt if its type is as fast as it may be.
std::optional<std::string> slower_type(const std::string& dtype, bool multiplies_bf16);

// A warning if updates on the host have less than a quarter of the machine's hardware threads, `online`, on all
// `local_size` ranks of it, as under a launcher that binds each rank to a core. None where OMP_NUM_THREADS says how
// many.
std::optional<std::string> few_threads(const parallel::HostUpdateOptions& options, int local_size, int online);
// Of this machine.
int online_hardware_threads();

}  // namespace mpzero
