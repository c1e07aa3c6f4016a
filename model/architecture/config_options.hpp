#pragma once

#include "model/architecture/config_reader.hpp"

namespace mpzero::model {

// The keys of a config.json, of any family, that ModelConfig has no field for: throws UserError where one of them asks
// for something that mpzero does not compute; the others are made known to `reader` as harmless.
void check_common_options(ConfigReader& reader);

}  // namespace mpzero::model
