#include "base/error.hpp"
#include "io/adapters/checkpoint_with_base.hpp"
#include "io/adapters/peft_files.hpp"
#include "io/files/atomic_file.hpp"
#include "io/peft/peft_config.hpp"
#include "tests/catch.hpp"
#include "tests/io/adapters/adapted_checkpoint.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

Exported exported(const AdaptedCheckpoint& saved, const fs::path& out) {
  return export_adapters(saved, out, WeightType::kFloat32);
}

}  // namespace

TEST_CASE("exported adapters have the checkpoint's values, settings and base") {
  const AdaptedCheckpoint saved;
  const fs::path out = saved.path("out");
  CHECK(exported(saved, out).files.size() == 2);
  const PeftConfig config = read_peft_config(out);
  CHECK((config.settings.r == 1 && config.settings.alpha == 2 && !config.settings.rslora));
  CHECK(config.settings.targets == std::vector<std::string>{"q_proj"});
  CHECK(config.base == saved.base());
  const auto all = saved.parameters();
  const std::vector<UnitSpec> units{{"layers.0", {all.begin(), all.end()}}};
  const auto adapters = open_adapters(out, units);
  std::vector<float> values(3);
  adapters->read(all[2], 0, values);
  CHECK(values == std::vector<float>{1, 10, 100});
}

TEST_CASE("adapters with other shapes or unknown names are refused with the first mismatch") {
  const AdaptedCheckpoint saved;
  const fs::path out = saved.path("out");
  exported(saved, out);
  std::vector<UnitSpec> units{{"layers.0", {{kProjection + ".lora_A.weight", {2, 3}}}}};
  CHECK_THROWS_WITH(open_adapters(out, units),
                    Contains("lora_A.weight") && Contains("[2, 3]") && Contains(out.string()));
  units[0].parameters = {saved.parameters()[2]};
  CHECK_THROWS_WITH(open_adapters(out, units), Contains("lora_B.weight"));
  // Adapters of some layers only.
  const auto all = saved.parameters();
  units[0].parameters = {all.begin(), all.end()};
  units.push_back({"layers.1", {{"model.layers.1.self_attn.q_proj.lora_A.weight", {1, 3}}}});
  CHECK_THROWS_WITH(open_adapters(out, units), Contains("layers.1.self_attn.q_proj.lora_A"));
}

TEST_CASE("an export of adapters replaces merged weights in the folder, and vice versa") {
  const AdaptedCheckpoint saved;
  SingleProcess alone;
  const MergedCheckpoint merged(saved, "", alone);
  const fs::path out = saved.path("out");
  exported(saved, out);
  CHECK(export_weights(merged, out, {}).replaced == std::vector<std::string>{kAdapterConfigName, kAdapterWeightsName});
  CHECK((has_initial_weights(out) && !holds_peft_adapters(out) && !fs::exists(out / kAdapterWeightsName)));
  CHECK(exported(saved, out).replaced == std::vector<std::string>{"config.json", "model.safetensors"});
  CHECK((holds_peft_adapters(out) && !has_initial_weights(out)));
}

TEST_CASE("adapters that cannot be read leave the previous export unchanged") {
  const AdaptedCheckpoint saved;
  const fs::path out = saved.path("out");
  exported(saved, out);
  const std::string former = read_text_file(out / kAdapterWeightsName, 1 << 20);
  AdaptedCheckpoint damaged;
  damaged.specs.push_back({"model.layers.1.lora_A.weight", {1, 3}});  // has no values
  CHECK_THROWS(exported(damaged, out));
  CHECK((read_text_file(out / kAdapterWeightsName, 1 << 20) == former && holds_peft_adapters(out)));
}

}  // namespace mpzero::io
