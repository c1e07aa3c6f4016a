#include <nlohmann/json.hpp>

#include "model/architecture/architectures.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {
namespace {

// Returns true for layers with RoPE. As in transformers, every no_rope_layer_interval-th layer lacks RoPE by default.
std::vector<bool> read_rotated_layers(ConfigReader& reader, int64_t layers) {
  const int64_t interval = reader.integer("no_rope_layer_interval", 4);
  const nlohmann::json* given = reader.find("no_rope_layers");
  if (given != nullptr && !given->is_array()) reader.wrong("no_rope_layers", *given, "a list");
  if (interval < 1) reader.wrong("no_rope_layer_interval", interval, "at least 1");
  std::vector<bool> rotated;
  if (given == nullptr) {
    for (int64_t layer = 0; layer < layers; ++layer) rotated.push_back((layer + 1) % interval != 0);
    return rotated;
  }
  for (const nlohmann::json& entry : *given) {
    if (entry != 0 && entry != 1) reader.wrong("no_rope_layers", *given, "a list of 0s and 1s");
    rotated.push_back(entry == 1);
  }
  return rotated;
}

}  // namespace

// SmolLM3: Llama with some layers without RoPE (NoPE).
const Architecture kSmolLm3{
    .model_type = "smollm3",
    .causal_lm_class = "SmolLM3ForCausalLM",
    .tied_by_default = true,
    .default_rms_norm_eps = 1e-6,
    .default_rope_theta = 2000000.0,
    .default_key_value_heads = 4,
    .read_options =
        [](ConfigReader& reader, ModelConfig& config) {
          refuse_attention_bias(reader);
          refuse_mlp_bias(reader);
          refuse_sliding_window(reader);
          config.rotated_layers = read_rotated_layers(reader, config.num_hidden_layers);
        },
    .write_options =
        [](const ModelConfig& config, nlohmann::json& json) {
          json["mlp_bias"] = false;
          json["use_sliding_window"] = false;
          json["sliding_window"] = nullptr;
          json["no_rope_layers"] = nlohmann::json::array();
          for (const bool rotated : config.rotated_layers) json["no_rope_layers"].push_back(rotated ? 1 : 0);
        },
    .layer_parameters = llama_layer_parameters,
};

}  // namespace mpzero::model
