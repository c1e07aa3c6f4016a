#include "tests/model/architecture/family.hpp"

namespace mpzero::model {

TEST_CASE("every fourth layer of SmolLM3 does not rotate, or those that the file names") {
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
