#include <nlohmann/json.hpp>

#include "model/architecture/architectures.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {
namespace {

int64_t default_head_dim(const ModelConfig& config) { return config.hidden_size / config.num_attention_heads; }

void check_options(ConfigReader& reader) {
  refuse_attention_bias(reader);
  reader.only("mlp_bias", false, "use a model whose MLP has no biases");
  reader.only("sliding_window", nullptr, "use a model that attends to the whole sequence");
}

void write_options(const ModelConfig&, nlohmann::json& json) {
  json["mlp_bias"] = false;
  json["pretraining_tp"] = 1;
}

std::vector<LayerParameter> layer_parameters(const ModelConfig& c) {
  const int64_t hidden = c.hidden_size, q = c.query_size(), kv = c.key_value_size(), inner = c.intermediate_size;
  return {{LayerRole::kInputNorm, "input_layernorm.weight", {hidden}},
          {LayerRole::kQuery, "self_attn.q_proj.weight", {q, hidden}},
          {LayerRole::kKey, "self_attn.k_proj.weight", {kv, hidden}},
          {LayerRole::kValue, "self_attn.v_proj.weight", {kv, hidden}},
          {LayerRole::kOutput, "self_attn.o_proj.weight", {hidden, q}},
          {LayerRole::kPostAttentionNorm, "post_attention_layernorm.weight", {hidden}},
          {LayerRole::kGate, "mlp.gate_proj.weight", {inner, hidden}},
          {LayerRole::kUp, "mlp.up_proj.weight", {inner, hidden}},
          {LayerRole::kDown, "mlp.down_proj.weight", {hidden, inner}}};
}

}  // namespace

// Llama 3 and 3.1 (and older Llamas with the same keys).
const Architecture kLlama{.model_type = "llama",
                          .causal_lm_class = "LlamaForCausalLM",
                          .tied_by_default = false,
                          .default_rms_norm_eps = 1e-6,
                          .default_rope_theta = 10000.0,
                          .default_head_dim = default_head_dim,
                          .default_key_value_heads = {},
                          .check_options = check_options,
                          .write_options = write_options,
                          .layer_parameters = layer_parameters};

}  // namespace mpzero::model
