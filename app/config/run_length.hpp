#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/config/run_config.hpp"

namespace mpzero {

// Sets the run's length. If only epochs are set, max_steps is the maximum int64_t until apply_epochs().
void resolve_length(const CommandLine& line, RunConfig& config);

// Throws UserError if --profile_steps ends after max_steps. Adds a warning if the given log interval is too long to log
// a step before the last.
void check_intervals(const RunConfig& config, std::vector<std::string>& warnings);

}  // namespace mpzero
