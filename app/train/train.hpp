#pragma once

#include "app/flags/options.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero {

// `mpzero train` with these flags. Collective over all ranks of `mpi`. Returns the exit code: EXIT_SUCCESS, or
// kStoppedExitCode if the run stopped on request with its state saved.
int train(const CommandLine& command_line, parallel::MpiRuntime& mpi);

}  // namespace mpzero
