#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/architecture/config.hpp"
#include "model/architecture/layer_layout.hpp"

namespace mpzero::model {

class ConfigReader;

// The properties of a family of models. A new family needs a file that defines an Architecture, a line in
// architectures.cpp and a test. The decoder requires kQuery, kKey, kValue next to each other, their biases likewise,
// and kGate next to kUp, because it processes each group in one matrix product.
struct Architecture {
  std::string_view model_type;       // "model_type" of config.json
  std::string_view causal_lm_class;  // "architectures" of config.json
  bool tied_by_default;              // tie_word_embeddings if config.json omits it
  double default_rms_norm_eps;
  double default_rope_theta;
  // The head size if config.json omits it.
  int64_t (*default_head_dim)(const ModelConfig& config);
  // num_key_value_heads if config.json omits it; std::nullopt: the number of query heads.
  std::optional<int64_t> default_key_value_heads;
  // Refuses options of this family that mpzero does not support and registers its other keys with `reader`.
  void (*check_options)(ConfigReader& reader);
  // Adds this family's own keys to the common ones in to_json.
  void (*write_options)(const ModelConfig& config, nlohmann::json& json);
  // A layer's weights in the order of the unit.
  std::vector<LayerParameter> (*layer_parameters)(const ModelConfig& config);
};

std::span<const Architecture* const> architectures();

// Throws UserError, naming `source` and the supported types, if there is none.
const Architecture& find_architecture(std::string_view model_type, std::string_view source);

// Llama's weights; `after_values` follow the projection of the values.
std::vector<LayerParameter> llama_layer_parameters(const ModelConfig& config,
                                                   std::vector<LayerParameter> after_values = {});

// For check_options: throw UserError, naming file, key and value, if the option is on.
void refuse_attention_bias(ConfigReader& reader);
void refuse_sliding_window(ConfigReader& reader);

extern const Architecture kLlama;
extern const Architecture kQwen2;
extern const Architecture kQwen3;

}  // namespace mpzero::model
