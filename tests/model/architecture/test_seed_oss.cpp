#include "tests/model/architecture/family.hpp"

namespace mpzero::model {

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

}  // namespace mpzero::model
