#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "model/architecture/architectures.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {

// Phi-3 and Phi-4 (not mini): Llama with one weight for queries, keys and values, and one weight for gate and up.
const Architecture kPhi3{
    .model_type = "phi3",
    .causal_lm_class = "Phi3ForCausalLM",
    .tied_by_default = false,
    .default_rms_norm_eps = 1e-5,
    .default_rope_theta = 10000.0,
    .default_key_value_heads = {},
    .read_options =
        [](ConfigReader& reader, ModelConfig& config) {
          refuse_attention_bias(reader);
          read_sliding_window(reader, config, /*missing=*/{});
          if (!config.rope_scaling) return;
          if (!std::holds_alternative<LongRopeScaling>(*config.rope_scaling)) {
            throw_user_error("{}: phi3 supports only rope_type \"longrope\" in rope_scaling; remove rope_scaling.",
                             reader.source());
          }
          // Required, because transformers' default for a missing key takes precedence over the scaling's value.
          reader.integer(kOriginalPositions);
        },
    .write_options =
        [](const ModelConfig& config, nlohmann::json& json) {
          write_sliding_window(config, json);
          if (config.rope_scaling) json[kOriginalPositions] = json["rope_parameters"][kOriginalPositions];
        },
    .layer_parameters = [](const ModelConfig& c) -> std::vector<LayerParameter> {
      const int64_t hidden = c.hidden_size, q = c.query_size(), kv = c.key_value_size(), inner = c.intermediate_size;
      return {{LayerRole::kInputNorm, "input_layernorm.weight", {hidden}},
              {LayerRole::kQuery, "self_attn.qkv_proj.weight", {q + 2 * kv, hidden}},
              {LayerRole::kOutput, "self_attn.o_proj.weight", {hidden, q}},
              {LayerRole::kPostAttentionNorm, "post_attention_layernorm.weight", {hidden}},
              {LayerRole::kGate, "mlp.gate_up_proj.weight", {2 * inner, hidden}},
              {LayerRole::kDown, "mlp.down_proj.weight", {hidden, inner}}};
    },
};

}  // namespace mpzero::model
