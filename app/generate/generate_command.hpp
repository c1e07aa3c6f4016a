#pragma once

#include <string>
#include <vector>

namespace mpzero {

// mpzero generate CHECKPOINT --prompt TEXT: completes a prompt, streaming to stdout; prints its speed to stderr. Needs
// no MPI. Returns the exit code. Throws UserError for invalid arguments, folders and prompts.
int generate_command(const std::vector<std::string>& arguments);

}  // namespace mpzero
