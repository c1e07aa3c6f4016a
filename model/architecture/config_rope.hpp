#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/architecture/architectures.hpp"
#include "model/architecture/config.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {

// Reads the RoPE settings of a config.json: rope_parameters from transformers 5, or rope_theta and rope_scaling from
// earlier versions. Throws UserError if these keys disagree, if the scaling is unsupported, or if a key is unknown.
void read_rope(ConfigReader& reader, const Architecture& architecture, ModelConfig& config);

// Returns the scaling in the format of config.json's rope_scaling.
nlohmann::json rope_json(const RopeScaling& scaling);

// Throws UserError with `source` if a parameter of the scaling is out of range.
void validate_rope(const ModelConfig& config, const std::string& source);

}  // namespace mpzero::model
