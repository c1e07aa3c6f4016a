#pragma once

#include <string>
#include <vector>

namespace mpzero {

// mpzero checkpoint ls|verify|show|diff|prune DIR. Needs neither MPI nor a GPU. Returns the exit status: 0;
// kFailureExitCode if `verify` found damage or `prune` left files behind; 1 if `diff` found differences. Throws
// UserError for unknown arguments.
int checkpoint_command(const std::vector<std::string>& arguments);

std::string checkpoint_command_help();

}  // namespace mpzero
