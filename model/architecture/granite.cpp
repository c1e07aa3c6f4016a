#include <nlohmann/json.hpp>

#include "model/architecture/architectures.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {

// Granite 3 (dense): Llama with multipliers for embedding, attention scores, residual branches and logits.
const Architecture kGranite{
    .model_type = "granite",
    .causal_lm_class = "GraniteForCausalLM",
    .tied_by_default = false,
    .default_rms_norm_eps = 1e-6,
    .default_rope_theta = 10000.0,
    .default_key_value_heads = {},
    .read_options =
        [](ConfigReader& reader, ModelConfig& config) {
          refuse_attention_bias(reader);
          refuse_mlp_bias(reader);
          config.embedding_multiplier = reader.number("embedding_multiplier", 1.0);
          config.residual_multiplier = reader.number("residual_multiplier", 1.0);
          config.logits_scaling = reader.number("logits_scaling", 1.0);
          config.attention_multiplier = reader.number("attention_multiplier", 1.0);
        },
    .write_options =
        [](const ModelConfig& config, nlohmann::json& json) {
          json["mlp_bias"] = false;
          json["embedding_multiplier"] = config.embedding_multiplier;
          json["residual_multiplier"] = config.residual_multiplier;
          json["logits_scaling"] = config.logits_scaling;
          json["attention_multiplier"] = config.attention_multiplier.value_or(1.0);
        },
    .layer_parameters = llama_layer_parameters,
};

}  // namespace mpzero::model
