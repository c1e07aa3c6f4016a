#pragma once

#include <string>
#include <vector>

#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero {

// `mpzero train`: `arguments` are the flags after it. Collective over all ranks of `mpi`. Returns the exit code:
// EXIT_SUCCESS, or kStoppedExitCode if the run was asked to stop and its state is saved.
int train(const std::vector<std::string>& arguments, parallel::MpiRuntime& mpi);

}  // namespace mpzero
