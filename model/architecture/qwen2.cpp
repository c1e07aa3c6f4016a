#include <nlohmann/json.hpp>

#include "model/architecture/architectures.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {
namespace {

void read_options(ConfigReader& reader, ModelConfig&) {
  reader.only("attention_bias", true, "the queries, keys and values of qwen2 always have biases; remove the key");
  refuse_sliding_window(reader);
}

void write_options(const ModelConfig& config, nlohmann::json& json) {
  json.erase("attention_bias");
  json["use_sliding_window"] = false;
  json["sliding_window"] = nullptr;
  json["max_window_layers"] = config.num_hidden_layers;
}

std::vector<LayerParameter> layer_parameters(const ModelConfig& c) {
  const int64_t q = c.query_size(), kv = c.key_value_size();
  return llama_layer_parameters(c, {{LayerRole::kQueryBias, "self_attn.q_proj.bias", {q}},
                                    {LayerRole::kKeyBias, "self_attn.k_proj.bias", {kv}},
                                    {LayerRole::kValueBias, "self_attn.v_proj.bias", {kv}}});
}

}  // namespace

// Qwen2 and Qwen2.5 (dense): a Llama whose queries, keys and values have biases.
const Architecture kQwen2{.model_type = "qwen2",
                          .causal_lm_class = "Qwen2ForCausalLM",
                          .tied_by_default = false,
                          .default_rms_norm_eps = 1e-6,
                          .default_rope_theta = 10000.0,
                          .default_key_value_heads = 32,
                          .read_options = read_options,
                          .write_options = write_options,
                          .layer_parameters = layer_parameters};

}  // namespace mpzero::model
