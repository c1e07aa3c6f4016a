#pragma once

#include <cstdint>

#include "app/config/run_config.hpp"

namespace mpzero {

// With epochs max_steps, where it is not given, is the largest number until apply_epochs.
void resolve_length(const CommandLine& line, RunConfig& config);

// Throws UserError where --profile_steps goes beyond max_steps.
void check_profile_steps(const RunConfig& config);

}  // namespace mpzero
