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
// and kGate next to kUp, because it processes each group in one matrix product; see LayerLayout.
struct Architecture {
  std::string_view model_type;       // "model_type" of config.json
  std::string_view causal_lm_class;  // "architectures" of config.json
  bool tied_by_default = false;      // tie_word_embeddings if config.json omits it
  double default_rms_norm_eps = 0;
  double default_rope_theta = 0;
  // head_dim if config.json omits it; std::nullopt: hidden_size / num_attention_heads.
  std::optional<int64_t> default_head_dim = {};
  // num_key_value_heads if config.json omits it; std::nullopt: the number of query heads.
  std::optional<int64_t> default_key_value_heads = {};
  // Reads this family's own keys, after the common ones, and refuses options that mpzero does not support.
  void (*read_options)(ConfigReader& reader, ModelConfig& config) = nullptr;
  // Adds this family's own keys to the common ones in to_json.
  void (*write_options)(const ModelConfig& config, nlohmann::json& json) = nullptr;
  // A layer's weights in the order of the unit.
  std::vector<LayerParameter> (*layer_parameters)(const ModelConfig& config) = nullptr;

  // A model that is not a decoder-only transformer sets these five instead: reading and writing its config.json (except
  // model_type and token ids), its units, the standard deviation of a parameter's random weights, FLOPs per token.
  ModelConfig (*read)(ConfigReader& reader) = nullptr;
  nlohmann::json (*write)(const ModelConfig& config) = nullptr;
  std::vector<UnitSpec> (*units)(const ModelConfig& config) = nullptr;
  double (*deviation)(const ModelConfig& config, std::string_view name) = nullptr;
  double (*flops_per_token)(const ModelConfig& config, int64_t seq_length, int64_t source_length) = nullptr;
};

std::span<const Architecture* const> architectures();

// Throws UserError with `source` and the supported types for an unknown type.
const Architecture& find_architecture(std::string_view model_type, std::string_view source);

// Llama's weights; `after_values` follow the projection of the values.
std::vector<LayerParameter> llama_layer_parameters(const ModelConfig& config,
                                                   std::vector<LayerParameter> after_values = {});
// The same with biases of queries, keys and values.
std::vector<LayerParameter> biased_layer_parameters(const ModelConfig& config);

// For read_options: throw UserError with file, key and value if the option is on.
void refuse_attention_bias(ConfigReader& reader);
void refuse_sliding_window(ConfigReader& reader);

// For families whose sliding window depends on no other option. `missing`: the window if config.json omits the key;
// null means none.
void read_sliding_window(ConfigReader& reader, ModelConfig& config, std::optional<int64_t> missing);
void write_sliding_window(const ModelConfig& config, nlohmann::json& json);

extern const Architecture kGranite;
extern const Architecture kLlama;
extern const Architecture kMistral;
extern const Architecture kOlmo2;
extern const Architecture kPhi3;
extern const Architecture kQwen2;
extern const Architecture kQwen3;
extern const Architecture kSeedOss;
extern const Architecture kSmolLm3;
extern const Architecture kT5;

}  // namespace mpzero::model
