#include <nlohmann/json.hpp>

#include "model/architecture/architectures.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {

// Llama 3 and 3.1, and older Llama models with the same keys.
const Architecture kLlama{
    .model_type = "llama",
    .causal_lm_class = "LlamaForCausalLM",
    .tied_by_default = false,
    .default_rms_norm_eps = 1e-6,
    .default_rope_theta = 10000.0,
    .default_key_value_heads = {},
    .read_options =
        [](ConfigReader& reader, ModelConfig&) {
          refuse_attention_bias(reader);
          refuse_mlp_bias(reader);
          reader.only("sliding_window", nullptr, "use a model with full attention");
        },
    .write_options =
        [](const ModelConfig&, nlohmann::json& json) {
          json["mlp_bias"] = false;
          json["pretraining_tp"] = 1;
        },
    .layer_parameters = llama_layer_parameters,
};

}  // namespace mpzero::model
