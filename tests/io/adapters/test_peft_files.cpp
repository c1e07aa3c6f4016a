#include "base/error.hpp"
#include "io/adapters/peft_files.hpp"
#include "io/peft/peft_config.hpp"
#include "tests/catch.hpp"
#include "tests/io/adapters/adapted_checkpoint.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;

TEST_CASE("exported adapters have the values, the settings and the base of the checkpoint") {
  const AdaptedCheckpoint saved;
  const fs::path out = saved.path("out");
  CHECK(export_adapters(saved, out, WeightType::kFloat32).size() == 2);
  const PeftConfig config = read_peft_config(out);
  CHECK((config.settings.r == 1 && config.settings.lora_alpha == 2 && !config.settings.use_rslora));
  CHECK(config.settings.target_modules == std::vector<std::string>{"q_proj"});
  CHECK(config.base == saved.base());
  const auto all = saved.parameters();
  const std::vector<UnitSpec> units{{"layers.0", {all.begin(), all.end()}}};
  const auto adapters = open_adapters(out, units);
  std::vector<float> values(3);
  adapters->read(all[2], 0, values);
  CHECK(values == std::vector<float>{1, 10, 100});
}

TEST_CASE("adapters of another shape, and those that the model lacks, are refused with the first that differs") {
  const AdaptedCheckpoint saved;
  const fs::path out = saved.path("out");
  export_adapters(saved, out, WeightType::kFloat32);
  std::vector<UnitSpec> units{{"layers.0", {{kProjection + ".lora_A.weight", {2, 3}}}}};
  CHECK_THROWS_WITH(open_adapters(out, units), Contains("lora_A.weight [2, 3]") && Contains(out.string()));
  units[0].parameters = {saved.parameters()[2]};
  CHECK_THROWS_WITH(open_adapters(out, units), Contains("lora_B.weight [2, 1]"));
}

}  // namespace mpzero::io
