#pragma once

#include <string>

#include "app/flags/settings.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {

// Adds the configured adapters to the model. Throws UserError, naming flag or key, for settings that are incomplete,
// that adapters do not support, or that differ from the model's existing adapters (from `adapters`). `source`: the
// source of the settings, for messages.
void set_up_lora(const Settings& config, const std::string& source, const std::string& adapters,
                 model::ModelConfig& model);

// "r 16, alpha 16, q_proj v_proj".
std::string describe_lora(const LoraConfig& lora);

}  // namespace mpzero
