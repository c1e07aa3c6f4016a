#include <nlohmann/json.hpp>

#include "model/architecture/architectures.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {

// Mistral 7B: Llama with an optional sliding window.
const Architecture kMistral{
    .model_type = "mistral",
    .causal_lm_class = "MistralForCausalLM",
    .tied_by_default = false,
    .default_rms_norm_eps = 1e-6,
    .default_rope_theta = 10000.0,
    .default_key_value_heads = 8,
    .read_options =
        [](ConfigReader& reader, ModelConfig& config) {
          refuse_attention_bias(reader);
          read_sliding_window(reader, config, /*missing=*/4096);
        },
    .write_options = [](const ModelConfig& config, nlohmann::json& json) { write_sliding_window(config, json); },
    .layer_parameters = llama_layer_parameters,
};

}  // namespace mpzero::model
