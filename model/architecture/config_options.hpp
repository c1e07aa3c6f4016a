#pragma once

#include "model/architecture/config_reader.hpp"

namespace mpzero::model {

// Handles config.json keys of any family that have no field in ModelConfig. Throws UserError if one of them requests an
// unsupported option; registers the others with `reader` as harmless.
void check_common_options(ConfigReader& reader, bool encoder_decoder = false);

}  // namespace mpzero::model
