#pragma once

#include <string>
#include <vector>

namespace mpzero {

// Implements `mpzero checkpoint ls|verify|show|diff|prune DIR`, which needs neither MPI nor a GPU. Returns 0 on
// success, 1 if `diff` found differences, and kFailureExitCode if `verify` found damage or `prune` could not remove a
// file. Throws UserError for unknown arguments.
int checkpoint_command(const std::vector<std::string>& arguments);

std::string checkpoint_command_help();

}  // namespace mpzero
