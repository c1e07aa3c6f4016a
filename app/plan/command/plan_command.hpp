#pragma once

#include <string>
#include <vector>

namespace mpzero::plan {

struct PlanOutput {
  std::string text;                   // printed to stdout
  std::vector<std::string> warnings;  // one line each
  int exit_code = 0;                  // EXIT_SUCCESS, or kUserErrorExitCode if the run does not fit
};

// Returns the output of `mpzero plan` with these arguments. Throws UserError for invalid arguments.
PlanOutput plan_output(const std::vector<std::string>& arguments);

// Implements `mpzero plan`, including --calibrate. Prints the output and returns the exit code.
int run_plan_command(const std::vector<std::string>& arguments);

}  // namespace mpzero::plan
