#pragma once

#include <string>
#include <vector>

#include "app/config/run_config.hpp"

namespace mpzero {

// Adds a warning for each part of the file that is missing or "auto" and set by no flag, if mpzero's default differs
// from that of the Hugging Face Trainer, which fills such gaps for DeepSpeed's users.
void warn_of_own_values(const io::DsConfig& file, const RunConfig& config, std::vector<std::string>& warnings);

}  // namespace mpzero
