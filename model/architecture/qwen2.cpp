#include <nlohmann/json.hpp>

#include "model/architecture/architectures.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {

// Qwen2 and Qwen2.5 (dense): Llama with query, key and value biases.
const Architecture kQwen2{
    .model_type = "qwen2",
    .causal_lm_class = "Qwen2ForCausalLM",
    .tied_by_default = false,
    .default_rms_norm_eps = 1e-6,
    .default_rope_theta = 10000.0,
    .default_key_value_heads = 32,
    .read_options =
        [](ConfigReader& reader, ModelConfig&) {
          reader.only("attention_bias", true, "qwen2 always has query, key and value biases; remove the key");
          refuse_sliding_window(reader);
        },
    .write_options =
        [](const ModelConfig& config, nlohmann::json& json) {
          json.erase("attention_bias");
          json["use_sliding_window"] = false;
          json["sliding_window"] = nullptr;
          json["max_window_layers"] = config.num_hidden_layers;
        },
    .layer_parameters = biased_layer_parameters,
};

}  // namespace mpzero::model
