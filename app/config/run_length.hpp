#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/config/run_config.hpp"

namespace mpzero {

// Sets the run's length. If only epochs are set, max_steps is the maximum int64_t until apply_epochs().
void resolve_length(const CommandLine& line, RunConfig& config);

// Throws UserError if --profile_steps ends after max_steps. Adds a warning if the log interval is so long that only the
// last step is logged.
void check_intervals(const RunConfig& config, std::vector<std::string>& warnings);

}  // namespace mpzero
