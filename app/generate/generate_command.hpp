#pragma once

#include <string>
#include <vector>

namespace mpzero {

// Implements `mpzero generate CHECKPOINT --prompt TEXT`. Streams the completion to stdout and prints the throughput to
// stderr. Does not use MPI. Returns the exit code. Throws UserError for an invalid argument, folder or prompt.
int generate_command(const std::vector<std::string>& arguments);

}  // namespace mpzero
