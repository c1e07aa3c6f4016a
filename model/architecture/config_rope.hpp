#pragma once

#include "model/architecture/architectures.hpp"
#include "model/architecture/config.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {

// Reads rope_theta and rope_scaling out of a config.json: transformers 5 writes rope_parameters with rope_theta in it,
// flat or one entry for each type of layer, of which "full_attention" is the one in use; earlier versions write
// rope_scaling beside rope_theta. Where several of them stand there they must agree. Throws UserError for a type of
// scaling that mpzero does not compute, and for keys that it does not know.
void read_rope(ConfigReader& reader, const Architecture& architecture, ModelConfig& config);

}  // namespace mpzero::model
