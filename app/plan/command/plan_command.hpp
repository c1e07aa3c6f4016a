#pragma once

#include <string>
#include <vector>

namespace mpzero::plan {

struct PlanOutput {
  std::string text;                   // for stdout
  std::vector<std::string> warnings;  // for the user, one line each
  int exit_code = 0;                  // EXIT_SUCCESS, or kUserErrorExitCode if the run does not fit
};

// The output of `mpzero plan` with these arguments. Throws UserError if the run would refuse them.
PlanOutput plan_output(const std::vector<std::string>& arguments);

// `mpzero plan`: prints the output, or calibrates, and returns the exit code.
int run_plan_command(const std::vector<std::string>& arguments);

}  // namespace mpzero::plan
