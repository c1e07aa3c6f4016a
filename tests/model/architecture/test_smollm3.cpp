#include "tests/model/architecture/family.hpp"

namespace mpzero::model {

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
