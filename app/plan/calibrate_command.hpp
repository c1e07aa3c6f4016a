#pragma once

#include <string>
#include <vector>

#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero::plan {

// Implements `mpzero plan --calibrate FILE [--device DEVICE] [--calibrate_seconds N]`: measures this machine, writes
// the file and prints a summary. `ranks`: ranks of a host that measure its CPU together, or null for a single process.
// Returns EXIT_SUCCESS. Throws UserError for invalid arguments. Collective over `ranks`.
int calibrate_command(const std::vector<std::string>& arguments, parallel::MpiRuntime* ranks = nullptr);

// Returns true if the arguments contain --calibrate.
bool asks_to_calibrate(const std::vector<std::string>& arguments);

}  // namespace mpzero::plan
