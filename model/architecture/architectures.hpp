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

// What tells one family of models from another. A new one is a file that defines an Architecture, a line in
// architectures.cpp and a test. The decoder wants kQuery, kKey, kValue next to each other, their biases likewise, and
// kGate next to kUp, because it works with each group at once.
struct Architecture {
  std::string_view model_type;       // "model_type" of config.json
  std::string_view causal_lm_class;  // "architectures" of config.json
  bool tied_by_default;              // tie_word_embeddings where config.json leaves it out
  double default_rms_norm_eps;
  double default_rope_theta;
  // The head size where config.json names none.
  int64_t (*default_head_dim)(const ModelConfig& config);
  // num_key_value_heads where config.json leaves it out; nothing: as many as there are queries' heads.
  std::optional<int64_t> default_key_value_heads;
  // Refuses options of this family that mpzero does not compute, and makes its others known to `reader`.
  void (*check_options)(ConfigReader& reader);
  // Adds the keys of this family that to_json writes beside the common ones.
  void (*write_options)(const ModelConfig& config, nlohmann::json& json);
  // A layer's weights in the order in which they lie in the unit.
  std::vector<LayerParameter> (*layer_parameters)(const ModelConfig& config);
};

std::span<const Architecture* const> architectures();

// Throws UserError, naming `source` and the supported types, if there is none.
const Architecture& find_architecture(std::string_view model_type, std::string_view source);

// For check_options: throw UserError, naming file, key and value, where the option is on.
void refuse_attention_bias(ConfigReader& reader);
void refuse_sliding_window(ConfigReader& reader);

extern const Architecture kLlama;
extern const Architecture kQwen2;
extern const Architecture kQwen3;

}  // namespace mpzero::model
