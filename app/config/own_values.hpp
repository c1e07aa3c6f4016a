#pragma once

#include <string>
#include <vector>

#include "app/config/run_config.hpp"

namespace mpzero {

// One line for each part of the file that is missing or "auto", where neither flag nor file say what holds and the
// Hugging Face Trainer, who fills such gaps for DeepSpeed's users, would take another value than mpzero does.
void warn_of_own_values(const io::DsConfig& file, const RunConfig& config, std::vector<std::string>& warnings);

}  // namespace mpzero
