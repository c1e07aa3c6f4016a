#include <nlohmann/json.hpp>

#include "model/architecture/architectures.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {
namespace {

int64_t default_head_dim(const ModelConfig&) { return 128; }

void check_options(ConfigReader& reader) {
  refuse_attention_bias(reader);
  refuse_sliding_window(reader);
}

void write_options(const ModelConfig& config, nlohmann::json& json) {
  json["use_sliding_window"] = false;
  json["sliding_window"] = nullptr;
  json["max_window_layers"] = config.num_hidden_layers;
}

std::vector<LayerParameter> layer_parameters(const ModelConfig& c) {
  const int64_t hidden = c.hidden_size, q = c.query_size(), kv = c.key_value_size(), inner = c.intermediate_size;
  return {{LayerRole::kInputNorm, "input_layernorm.weight", {hidden}},
          {LayerRole::kQuery, "self_attn.q_proj.weight", {q, hidden}},
          {LayerRole::kKey, "self_attn.k_proj.weight", {kv, hidden}},
          {LayerRole::kValue, "self_attn.v_proj.weight", {kv, hidden}},
          {LayerRole::kQueryNorm, "self_attn.q_norm.weight", {c.head_dim}},
          {LayerRole::kKeyNorm, "self_attn.k_norm.weight", {c.head_dim}},
          {LayerRole::kOutput, "self_attn.o_proj.weight", {hidden, q}},
          {LayerRole::kPostAttentionNorm, "post_attention_layernorm.weight", {hidden}},
          {LayerRole::kGate, "mlp.gate_proj.weight", {inner, hidden}},
          {LayerRole::kUp, "mlp.up_proj.weight", {inner, hidden}},
          {LayerRole::kDown, "mlp.down_proj.weight", {hidden, inner}}};
}

}  // namespace

// Qwen3 (dense): with an RMS norm over each query and key head, and its own default head size.
const Architecture kQwen3{.model_type = "qwen3",
                          .causal_lm_class = "Qwen3ForCausalLM",
                          .tied_by_default = false,
                          .default_rms_norm_eps = 1e-6,
                          .default_rope_theta = 10000.0,
                          .default_head_dim = default_head_dim,
                          .default_key_value_heads = 32,
                          .check_options = check_options,
                          .write_options = write_options,
                          .layer_parameters = layer_parameters};

}  // namespace mpzero::model
