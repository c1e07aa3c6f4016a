#include <cmath>

#include "tests/model/architecture/family.hpp"

namespace mpzero::model {

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

}  // namespace mpzero::model
