#include "app/measure/layer_run.hpp"
#include "tests/catch.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero::measure {

TEST_CASE("layers of each family run forward and backward, again and again") {
  for (const auto& config : model::small_models()) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      LayerRun layer(config, {.sequences = 2, .length = 5, .type = type, .gradient_type = at::kFloat}, at::kCPU, 2);
      CHECK(layer.forward({.repeats = 2}).seconds > 0);
      CHECK(layer.backward({.repeats = 2}).seconds > 0);
      CHECK(layer.backward({.repeats = 1}).seconds > 0);
    }
  }
}

}  // namespace mpzero::measure
