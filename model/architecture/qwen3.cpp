#include <nlohmann/json.hpp>

#include "model/architecture/architectures.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {

// Qwen3 (dense): Llama with an RMS norm for each query and key head and a different default head size.
const Architecture kQwen3{
    .model_type = "qwen3",
    .causal_lm_class = "Qwen3ForCausalLM",
    .tied_by_default = false,
    .default_rms_norm_eps = 1e-6,
    .default_rope_theta = 10000.0,
    .default_head_dim = 128,
    .default_key_value_heads = 32,
    .read_options =
        [](ConfigReader& reader, ModelConfig&) {
          refuse_attention_bias(reader);
          refuse_sliding_window(reader);
        },
    .write_options =
        [](const ModelConfig& config, nlohmann::json& json) {
          json["use_sliding_window"] = false;
          json["sliding_window"] = nullptr;
          json["max_window_layers"] = config.num_hidden_layers;
        },
    .layer_parameters =
        [](const ModelConfig& c) {
          return llama_layer_parameters(c, {{LayerRole::kQueryNorm, "self_attn.q_norm.weight", {c.head_dim}},
                                            {LayerRole::kKeyNorm, "self_attn.k_norm.weight", {c.head_dim}}});
        },
};

}  // namespace mpzero::model
