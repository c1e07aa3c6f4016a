#pragma once

#include "model/architecture/config_reader.hpp"

namespace mpzero::model {

// Checks config.json keys that are common to all families but have no field in ModelConfig. Throws UserError if a key
// enables an unsupported option. Registers all other common keys with `reader` as harmless.
void check_common_options(ConfigReader& reader, bool encoder_decoder = false);

}  // namespace mpzero::model
