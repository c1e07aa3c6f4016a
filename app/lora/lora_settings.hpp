#pragma once

#include <string>

#include "app/flags/settings.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {

// Adds the configured adapters to the model. Throws UserError if the settings are incomplete, incompatible with
// adapters, or different from the initial adapters in the folder `adapters`. `source`: origin of the settings, for
// messages.
void set_up_lora(const Settings& config, const std::string& source, const std::string& adapters,
                 model::ModelConfig& model);

// Formats settings as "r 16, alpha 16, q_proj v_proj".
std::string describe_lora(const LoraConfig& lora);

}  // namespace mpzero
