#pragma once

#include <string>
#include <vector>

namespace mpzero {

// `mpzero top RUN|JOB [--once] [--interval SECONDS]`: shows a run on the terminal until it ends or Ctrl-C. Returns the
// exit code. Throws UserError.
int run_top_command(const std::vector<std::string>& arguments);

}  // namespace mpzero
