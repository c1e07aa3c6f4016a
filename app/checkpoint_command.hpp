#pragma once

#include <string>
#include <vector>

namespace mpzero {

// mpzero checkpoint ls|verify|prune DIR: lists the checkpoints of a folder, reads and checks every byte of them,
// removes old ones. Needs neither MPI nor a GPU. Returns the exit code: 0, or kFailureExitCode if `verify` found
// damage. Throws UserError for unknown arguments.
int checkpoint_command(const std::vector<std::string>& arguments);

std::string checkpoint_command_help();

}  // namespace mpzero
