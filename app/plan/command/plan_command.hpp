#pragma once

#include <string>
#include <vector>

namespace mpzero::plan {

// `mpzero plan`: prints what a run would take. Returns the exit code: EXIT_SUCCESS, or kUserErrorExitCode where the run
// does not fit. Throws UserError for what the run would refuse.
int run_plan_command(const std::vector<std::string>& arguments);

}  // namespace mpzero::plan
