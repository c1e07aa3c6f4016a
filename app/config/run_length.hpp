#pragma once

#include <cstdint>

#include "app/config/run_config.hpp"

namespace mpzero {

// Sets the run's length. If only epochs are set, max_steps is the maximum int64_t until apply_epochs().
void resolve_length(const CommandLine& line, RunConfig& config);

// Throws UserError if --profile_steps ends after max_steps.
void check_profile_steps(const RunConfig& config);

}  // namespace mpzero
