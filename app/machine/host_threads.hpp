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
// the cores near its GPU, some cores left free, or as many as OMP_NUM_THREADS says. Ranks that are bound to cores of
// their own use those. Nothing on the CPU, where the process's threads do it. Collective.
parallel::HostUpdateOptions host_update_options(at::Device device, parallel::MpiRuntime& mpi);

// The hardware threads of this rank's share that the threads above leave over, for those that write checkpoints: an
// update waits for the slowest of its threads, each of which has a core of its own. None where the share has no more,
// or nothing is bound. Collective.
std::vector<int> cores_beside_updates(at::Device device, parallel::MpiRuntime& mpi);

// e.g. "14 threads a rank, on rank 0 on hardware threads 2-15".
std::string describe(const parallel::HostUpdateOptions& options);

// What a user should know of the instructions by which states on the host are updated; none where they are the fastest.
// Whichever they are, the bits are the same.
std::optional<std::string> slower_update(parallel::HostKernel kernel);

}  // namespace mpzero
