#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/config/run_config.hpp"

namespace mpzero {

// Adds a warning for each ds_config.json section or key that is missing or "auto", is not set by a flag, and has a
// different default in the Hugging Face Trainer, which fills in such values for DeepSpeed.
void warn_of_own_values(const io::DsConfig& file, const RunConfig& config, std::vector<std::string>& warnings);

// Returns a note with flags for a faster dtype if the run uses bf16 on a CPU without bf16 matmul instructions, or fp32
// on a GPU because ds_config.json does not set bf16.enabled; else std::nullopt.
std::optional<std::string> slow_dtype(const RunConfig& config, bool is_cpu, bool multiplies_bf16);

}  // namespace mpzero
