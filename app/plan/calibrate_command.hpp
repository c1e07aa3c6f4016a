#pragma once

#include <string>
#include <vector>

#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero::plan {

// `mpzero plan --calibrate FILE [--device WHAT] [--calibrate_seconds N]`, without `plan`: measures this machine, writes
// the file and prints a summary. `ranks`: a host's ranks, which measure its CPU together; null: this process alone.
// Returns EXIT_SUCCESS. Throws UserError. Collective.
int calibrate_command(const std::vector<std::string>& arguments, parallel::MpiRuntime* ranks = nullptr);

// Whether the arguments contain --calibrate.
bool asks_to_calibrate(const std::vector<std::string>& arguments);

}  // namespace mpzero::plan
