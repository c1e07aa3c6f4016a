#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/architecture/architectures.hpp"
#include "model/architecture/config.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {

// Reads rope_theta and rope_scaling from a config.json. transformers 5 writes rope_parameters, which contains
// rope_theta. Earlier versions write rope_scaling next to rope_theta. If several of these keys exist, they must agree.
// Throws UserError for an unsupported type of scaling and for unknown keys.
void read_rope(ConfigReader& reader, const Architecture& architecture, ModelConfig& config);

// The scaling as rope_scaling of a config.json.
nlohmann::json rope_json(const RopeScaling& scaling);

// Throws UserError, naming `source`, for a scaling out of range.
void validate_rope(const ModelConfig& config, const std::string& source);

}  // namespace mpzero::model
