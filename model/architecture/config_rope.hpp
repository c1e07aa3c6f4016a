#pragma once

#include "model/architecture/architectures.hpp"
#include "model/architecture/config.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {

// Reads rope_theta and rope_scaling from a config.json. transformers 5 writes rope_parameters, which contains
// rope_theta, flat or with one entry for each type of layer, of which only "full_attention" is used. Earlier versions
// write rope_scaling next to rope_theta. If several of these keys exist, they must agree. Throws UserError for an
// unsupported type of scaling and for unknown keys.
void read_rope(ConfigReader& reader, const Architecture& architecture, ModelConfig& config);

}  // namespace mpzero::model
