#pragma once

#include <string>
#include <vector>

#include "app/config/run_config.hpp"

namespace mpzero {

// Adds a warning for each ds_config.json section or key that is missing or "auto", is not set by a flag, and has a
// different default in the Hugging Face Trainer, which fills in such values for DeepSpeed.
void warn_of_own_values(const io::DsConfig& file, const RunConfig& config, std::vector<std::string>& warnings);

}  // namespace mpzero
