#include "tests/model/architecture/family.hpp"

namespace mpzero::model {

TEST_CASE("a layer of Phi-3 has one weight for queries, keys and values, and one for gate and up") {
  const nlohmann::json weights = weights_of_layer(of_family("phi3"));
  CHECK(weights.size() == 6);
  CHECK(weights["self_attn.qkv_proj.weight"] == nlohmann::json::array({64, 32}));
  CHECK(weights["mlp.gate_up_proj.weight"] == nlohmann::json::array({80, 32}));
}

TEST_CASE("of Phi-3's options, a window is read, and longrope and partial rotation are refused") {
  CHECK_FALSE(of_family("phi3").sliding_window);
  CHECK(of_family("phi3", {{"sliding_window", 33}}).positions() == 33);
  CHECK_THAT(refused("phi3", {{"rope_scaling", {{"type", "longrope"}}}}), Contains("rope_type \"longrope\""));
  CHECK_THAT(refused("phi3", {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}), Contains("rope_scaling"));
  CHECK_THAT(refused("phi3", {{"partial_rotary_factor", 0.75}}), Contains("partial_rotary_factor 0.75"));
}

}  // namespace mpzero::model
