#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "model/architecture/config.hpp"
#include "tests/catch.hpp"

namespace mpzero::model {
namespace {

using Catch::Contains;

// Returns a small model of the family with these config.json keys. Checks that the output of to_json() reads back the
// same.
ModelConfig of_family(const char* model_type, const nlohmann::json& keys = nlohmann::json::object()) {
  nlohmann::json object = {{"model_type", model_type},      {"vocab_size", 48},        {"hidden_size", 32},
                           {"intermediate_size", 40},       {"num_hidden_layers", 4},  {"num_attention_heads", 4},
                           {"max_position_embeddings", 64}, {"num_key_value_heads", 2}};
  object.update(keys);
  const ModelConfig config = ModelConfig::from_json(object.dump(), "config.json");
  CHECK(ModelConfig::from_json(config.to_json(), "again") == config);
  return config;
}

// Returns the error for these keys.
std::string refused(const char* model_type, const nlohmann::json& keys) {
  try {
    of_family(model_type, keys);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

// Returns the names and shapes of a layer's weights.
nlohmann::json weights_of_layer(const ModelConfig& config) {
  const UnitSpec layer = model_units(config)[1];
  nlohmann::json weights;
  for (const ParameterSpec& parameter : layer.parameters) {
    weights[parameter.name.substr(std::string("model.layers.0.").size())] = parameter.shape;
  }
  return weights;
}

}  // namespace

TEST_CASE("Granite's multipliers are read and default to 1") {
  CHECK(of_family("granite").attention_multiplier == 1.0);
  CHECK(of_family("granite").logits_scaling == 1.0);
  const ModelConfig config = of_family("granite", {{"embedding_multiplier", 12},
                                                   {"residual_multiplier", 0.22},
                                                   {"attention_multiplier", 0.015625},
                                                   {"logits_scaling", 8}});
  CHECK(config.embedding_multiplier == 12);
  CHECK(config.residual_multiplier == 0.22);
  CHECK(config.attention_multiplier == 0.015625);
  CHECK(config.logits_scaling == 8);
  for (const char* key : {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"}) {
    CHECK_THAT(refused("granite", {{key, 0}}), Contains(std::string(key) + " is 0"));
    CHECK_THAT(refused("llama", {{key, 2}}), Contains(key));
  }
}

TEST_CASE("Mistral's window is 4096 unless the file sets it, and null disables it") {
  CHECK(of_family("mistral").sliding_window == 4096);
  CHECK(of_family("mistral").positions() == 64);
  CHECK(of_family("mistral", {{"sliding_window", 7}}).positions() == 7);
  CHECK_FALSE(of_family("mistral", {{"sliding_window", nullptr}}).sliding_window);
  CHECK_THAT(refused("mistral", {{"sliding_window", 0}}), Contains("sliding_window is 0"));
  CHECK_THAT(refused("mistral", {{"attention_bias", true}}), Contains("attention_bias true"));
}

TEST_CASE("an OLMo 2 layer has norms of outputs, and norms over all queries and all keys") {
  const nlohmann::json weights = weights_of_layer(of_family("olmo2"));
  CHECK(weights.size() == 11);
  CHECK(weights["self_attn.q_norm.weight"] == nlohmann::json::array({32}));
  CHECK(weights["self_attn.k_norm.weight"] == nlohmann::json::array({16}));
  CHECK(weights["post_feedforward_layernorm.weight"] == nlohmann::json::array({32}));
  CHECK_FALSE(weights.contains("input_layernorm.weight"));
  CHECK(of_family("olmo2").rms_norm_eps == 1e-5);
}

TEST_CASE("a Phi-3 layer has one weight for queries, keys and values, and one for gate and up") {
  const nlohmann::json weights = weights_of_layer(of_family("phi3"));
  CHECK(weights.size() == 6);
  CHECK(weights["self_attn.qkv_proj.weight"] == nlohmann::json::array({64, 32}));
  CHECK(weights["mlp.gate_up_proj.weight"] == nlohmann::json::array({80, 32}));
}

TEST_CASE("reads Phi-3's window and longrope, and refuses partial rotation") {
  CHECK_FALSE(of_family("phi3").sliding_window);
  CHECK(of_family("phi3", {{"sliding_window", 33}}).positions() == 33);
  const nlohmann::json longrope = {
      {"type", "longrope"}, {"short_factor", {1, 1, 2, 2}}, {"long_factor", {1, 2, 3, 4.5}}};
  const ModelConfig scaled = of_family("phi3", {{"rope_scaling", longrope}, {"original_max_position_embeddings", 16}});
  CHECK(scaled.positions() == 16);
  // sqrt(1 + ln 4 / ln 16)
  CHECK(std::get<LongRopeScaling>(*scaled.rope_scaling).attention_factor == Approx(std::sqrt(1.5)));
  CHECK_THAT(refused("phi3", {{"rope_scaling", longrope}}),
             Contains("\"original_max_position_embeddings\" is missing"));
  nlohmann::json shorter = longrope;
  shorter["long_factor"] = {1, 2};
  CHECK_THAT(refused("phi3", {{"rope_scaling", shorter}, {"original_max_position_embeddings", 16}}),
             Contains("long_factor"));
  shorter.erase("short_factor");
  CHECK_THAT(refused("phi3", {{"rope_scaling", shorter}}), Contains("rope_scaling.short_factor"));
  CHECK_THAT(refused("phi3", {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}), Contains("rope_scaling"));
  CHECK_THAT(refused("phi3", {{"partial_rotary_factor", 0.75}}), Contains("partial_rotary_factor 0.75"));
}

TEST_CASE("Seed-OSS has query, key and value biases and a head size of 128, and requires dropout 0") {
  nlohmann::json keys = {{"attention_dropout", 0}, {"residual_dropout", 0.0}};
  const nlohmann::json weights = weights_of_layer(of_family("seed_oss", keys));
  CHECK(weights["self_attn.q_proj.bias"] == nlohmann::json({4 * 128}));
  CHECK(weights["self_attn.v_proj.bias"] == nlohmann::json({2 * 128}));
  CHECK_FALSE(weights.contains("self_attn.o_proj.bias"));
  const auto refused_with = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json changed = keys;
    changed[key] = value;
    return refused("seed_oss", changed);
  };
  for (const char* key : {"attention_dropout", "residual_dropout"}) {
    CHECK_THAT(refused_with(key, 0.1), Contains(key));
    CHECK_THAT(refused_with(key, nullptr), Contains(key));
  }
  CHECK_THAT(refused_with("head_dim", nullptr), Contains("head_dim"));
  CHECK_THAT(refused_with("attention_bias", false), Contains("attention_bias false"));
  CHECK_THAT(refused_with("attention_out_bias", true), Contains("attention_out_bias true"));
  CHECK_THAT(refused_with("mlp_bias", true), Contains("mlp_bias true"));
}

TEST_CASE("SmolLM3 skips RoPE in every fourth layer, or in the layers set by the file") {
  CHECK(of_family("smollm3").rotated_layers == std::vector<bool>{true, true, true, false});
  CHECK(of_family("smollm3", {{"no_rope_layer_interval", 2}}).rotated_layers ==
        std::vector<bool>{true, false, true, false});
  CHECK_FALSE(of_family("smollm3", {{"no_rope_layers", {0, 1, 1, 1}}}).rotates(0));
  CHECK(of_family("smollm3").rope_theta == 2e6);
  CHECK_THAT(refused("smollm3", {{"no_rope_layers", {1, 0}}}), Contains("no_rope_layers has 2"));
  CHECK_THAT(refused("smollm3", {{"no_rope_layers", {2, 1, 1, 1}}}), Contains("no_rope_layers is [2,1,1,1]"));
  CHECK_THAT(refused("smollm3", {{"no_rope_layer_interval", 0}}), Contains("no_rope_layer_interval is 0"));
  CHECK_THAT(refused("llama", {{"no_rope_layers", {1, 1, 1, 1}}}), Contains("no_rope_layers"));
}

}  // namespace mpzero::model
