#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/architecture/architectures.hpp"
#include "model/architecture/config.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {

// Reads rope_theta and rope_scaling from a config.json. transformers 5 writes rope_parameters, which contains
// rope_theta. Earlier versions write rope_scaling next to rope_theta. If several of these keys exist, they must agree.
// Throws UserError for an unsupported scaling and for unknown keys.
void read_rope(ConfigReader& reader, const Architecture& architecture, ModelConfig& config);

// The scaling in the format of config.json's rope_scaling.
nlohmann::json rope_json(const RopeScaling& scaling);

// Throws UserError with `source` for a scaling out of range.
void validate_rope(const ModelConfig& config, const std::string& source);

}  // namespace mpzero::model
