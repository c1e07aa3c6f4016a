#include <nlohmann/json.hpp>

#include "base/lora_config.hpp"
#include "tests/catch.hpp"

namespace mpzero {

TEST_CASE("adapters are scaled by alpha / r, or by alpha / sqrt(r) with rslora") {
  CHECK(LoraConfig{.r = 16, .alpha = 16, .targets = {}}.scale() == 1);
  CHECK(LoraConfig{.r = 16, .alpha = 16, .targets = {}, .rslora = true}.scale() == 4);
}

TEST_CASE("adapter settings are read as written, and a missing dropout is 0") {
  const LoraConfig lora{.r = 4, .alpha = 2.5, .targets = {"q_proj", "v_proj"}, .rslora = true, .dropout = 0.25};
  nlohmann::json object = to_json(lora);
  CHECK(read_lora_config(object, "a file") == lora);
  object.erase("lora_dropout");
  CHECK(read_lora_config(object, "a file").dropout == 0);
  for (const nlohmann::json& wrong : {nlohmann::json(1), nlohmann::json(-0.1), nlohmann::json("0.1")}) {
    object["lora_dropout"] = wrong;
    CHECK_THROWS_WITH(read_lora_config(object, "a file"), Catch::Contains("a file: lora_dropout is " + wrong.dump()));
  }
}

}  // namespace mpzero
