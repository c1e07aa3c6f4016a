#pragma once

#include "app/flags/options.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero {

// Runs `mpzero train`. Collective over all ranks of `mpi`. Returns EXIT_SUCCESS, or kStoppedExitCode if the run stopped
// on request and saved its state.
int train(const CommandLine& command_line, parallel::MpiRuntime& mpi);

}  // namespace mpzero
