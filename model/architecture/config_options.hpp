#pragma once

#include "model/architecture/config_reader.hpp"

namespace mpzero::model {

// Handles the keys of a config.json, of any family, that have no field in ModelConfig. Throws UserError if one of them
// asks for something that mpzero does not support; registers the others with `reader` as harmless.
void check_common_options(ConfigReader& reader, bool encoder_decoder = false);

}  // namespace mpzero::model
