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

// Returns Llama's weights.
std::vector<LayerParameter> llama_layer_parameters(const ModelConfig& config);

// Properties of a model family. A new family needs an entry in families.cpp and a test. The decoder computes the query,
// key and value projections in one matmul, and the gate and up projections in another. The weights of each group must
// therefore be adjacent, and so must the biases (see LayerLayout).
struct Architecture {
  std::string_view model_type;       // "model_type" in config.json
  std::string_view causal_lm_class;  // "architectures" in config.json
  bool tied_by_default = false;      // default of tie_word_embeddings
  double default_rms_norm_eps = 1e-6;
  double default_rope_theta = 10000.0;
  // Default of head_dim; std::nullopt means hidden_size / num_attention_heads.
  std::optional<int64_t> default_head_dim = {};
  // Default of num_key_value_heads; std::nullopt means num_attention_heads.
  std::optional<int64_t> default_key_value_heads = {};
  // If false, the key attention_bias must be false or missing.
  bool attention_bias = false;
  // Reads the family-specific keys; called after the common keys have been read. Throws UserError for unsupported
  // options.
  void (*read_options)(ConfigReader& reader, ModelConfig& config) = nullptr;
  // Adds the family-specific keys to the JSON that to_json() writes.
  void (*write_options)(const ModelConfig& config, nlohmann::json& json) = nullptr;
  // Returns a layer's weights in the order of the layer's unit.
  std::vector<LayerParameter> (*layer_parameters)(const ModelConfig& config) = llama_layer_parameters;

  // Models other than decoder-only transformers set the following five functions instead, which read and write
  // config.json (except model_type and token IDs), list the units, and return a parameter's initial standard deviation
  // and the FLOPs per token.
  ModelConfig (*read)(ConfigReader& reader) = nullptr;
  nlohmann::json (*write)(const ModelConfig& config) = nullptr;
  std::vector<UnitSpec> (*units)(const ModelConfig& config) = nullptr;
  double (*deviation)(const ModelConfig& config, std::string_view name) = nullptr;
  double (*flops_per_token)(const ModelConfig& config, int64_t seq_length, int64_t source_length) = nullptr;
};

std::span<const Architecture> architectures();

// Throws UserError with `source` and the supported types if `model_type` is unknown.
const Architecture& find_architecture(std::string_view model_type, std::string_view source);

extern const Architecture kT5;

}  // namespace mpzero::model
