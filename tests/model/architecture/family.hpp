#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "model/architecture/config.hpp"
#include "tests/catch.hpp"

namespace mpzero::model {

using Catch::Contains;

// Returns a small model of the family with these config.json keys. Checks that the output of to_json() reads back the
// same.
inline ModelConfig of_family(const char* model_type, const nlohmann::json& keys = nlohmann::json::object()) {
  nlohmann::json object = {{"model_type", model_type},      {"vocab_size", 48},        {"hidden_size", 32},
                           {"intermediate_size", 40},       {"num_hidden_layers", 4},  {"num_attention_heads", 4},
                           {"max_position_embeddings", 64}, {"num_key_value_heads", 2}};
  object.update(keys);
  const ModelConfig config = ModelConfig::from_json(object.dump(), "config.json");
  CHECK(ModelConfig::from_json(config.to_json(), "again") == config);
  return config;
}

// Returns the error for these keys.
inline std::string refused(const char* model_type, const nlohmann::json& keys) {
  try {
    of_family(model_type, keys);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

// Returns the names and shapes of a layer's weights.
inline nlohmann::json weights_of_layer(const ModelConfig& config) {
  const UnitSpec layer = model_units(config)[1];
  nlohmann::json weights;
  for (const ParameterSpec& parameter : layer.parameters) {
    weights[parameter.name.substr(std::string("model.layers.0.").size())] = parameter.shape;
  }
  return weights;
}

}  // namespace mpzero::model
