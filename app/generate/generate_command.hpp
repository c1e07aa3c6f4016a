#pragma once

#include <string>
#include <vector>

namespace mpzero {

// mpzero generate CHECKPOINT --prompt TEXT: lets a model go on with a text, which is written to stdout as it grows; its
// speed goes to stderr. Needs no MPI. Returns the exit code. Throws UserError for wrong arguments, folders and prompts.
int generate_command(const std::vector<std::string>& arguments);

}  // namespace mpzero
