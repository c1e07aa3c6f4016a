#include <array>
#include <nlohmann/json.hpp>

#include "model/architecture/architectures.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {
namespace {

constexpr std::array kDropouts = {"attention_dropout", "residual_dropout"};

}  // namespace

// Seed-OSS: Llama with query, key and value biases and a different default head size.
const Architecture kSeedOss{
    .model_type = "seed_oss",
    .causal_lm_class = "SeedOssForCausalLM",
    .tied_by_default = false,
    .default_rms_norm_eps = 1e-6,
    .default_rope_theta = 10000.0,
    .default_head_dim = 128,
    .default_key_value_heads = 8,
    .read_options =
        [](ConfigReader& reader, ModelConfig&) {
          reader.only("attention_bias", true, "use a model with query, key and value biases");
          reader.only("attention_out_bias", false, "use a model without an output projection bias");
          refuse_mlp_bias(reader);
          // transformers interprets null as hidden_size / num_attention_heads and a missing key
          // as 128.
          if (reader.object().contains("head_dim")) {
            const nlohmann::json& head_dim = reader.object()["head_dim"];
            if (head_dim.is_null()) reader.wrong("head_dim", head_dim, "an integer");
          }
          // In transformers, the default for a missing key is 0.1.
          for (const char* key : kDropouts) reader.number(key);
        },
    .write_options =
        [](const ModelConfig&, nlohmann::json& json) {
          json["attention_bias"] = true;
          json["attention_out_bias"] = false;
          json["mlp_bias"] = false;
          for (const char* key : kDropouts) json[key] = 0.0;
        },
    .layer_parameters = biased_layer_parameters,
};

}  // namespace mpzero::model
