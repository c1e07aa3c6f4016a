#include <nlohmann/json.hpp>

#include "model/architecture/architectures.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {

// OLMo 2: Llama with norms on the outputs (not inputs) of attention and MLP, and on all queries and all keys of a
// token.
const Architecture kOlmo2{
    .model_type = "olmo2",
    .causal_lm_class = "Olmo2ForCausalLM",
    .tied_by_default = false,
    .default_rms_norm_eps = 1e-5,
    .default_rope_theta = 10000.0,
    .default_key_value_heads = {},
    .read_options = [](ConfigReader& reader, ModelConfig&) { refuse_attention_bias(reader); },
    .write_options = [](const ModelConfig&, nlohmann::json&) {},
    .layer_parameters = [](const ModelConfig& c) -> std::vector<LayerParameter> {
      const int64_t hidden = c.hidden_size, q = c.query_size(), kv = c.key_value_size(), inner = c.intermediate_size;
      return {{LayerRole::kQuery, "self_attn.q_proj.weight", {q, hidden}},
              {LayerRole::kKey, "self_attn.k_proj.weight", {kv, hidden}},
              {LayerRole::kValue, "self_attn.v_proj.weight", {kv, hidden}},
              {LayerRole::kQueryTokenNorm, "self_attn.q_norm.weight", {q}},
              {LayerRole::kKeyTokenNorm, "self_attn.k_norm.weight", {kv}},
              {LayerRole::kOutput, "self_attn.o_proj.weight", {hidden, q}},
              {LayerRole::kAttentionOutputNorm, "post_attention_layernorm.weight", {hidden}},
              {LayerRole::kGate, "mlp.gate_proj.weight", {inner, hidden}},
              {LayerRole::kUp, "mlp.up_proj.weight", {inner, hidden}},
              {LayerRole::kDown, "mlp.down_proj.weight", {hidden, inner}},
              {LayerRole::kMlpOutputNorm, "post_feedforward_layernorm.weight", {hidden}}};
    },
};

}  // namespace mpzero::model
