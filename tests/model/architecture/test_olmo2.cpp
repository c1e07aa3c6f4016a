#include "tests/model/architecture/family.hpp"

namespace mpzero::model {

TEST_CASE("an OLMo 2 layer has norms of outputs, and norms over all queries and all keys") {
  const nlohmann::json weights = weights_of_layer(of_family("olmo2"));
  CHECK(weights.size() == 11);
  CHECK(weights["self_attn.q_norm.weight"] == nlohmann::json::array({32}));
  CHECK(weights["self_attn.k_norm.weight"] == nlohmann::json::array({16}));
  CHECK(weights["post_feedforward_layernorm.weight"] == nlohmann::json::array({32}));
  CHECK_FALSE(weights.contains("input_layernorm.weight"));
  CHECK(of_family("olmo2").rms_norm_eps == 1e-5);
}

}  // namespace mpzero::model
