#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/peft/peft_config.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

namespace mpzero::io {
using Catch::Contains;
using nlohmann::json;
namespace {

PeftConfig read(const json& config) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() / kAdapterConfigName) << config.dump();
  return read_peft_config(folder.path());
}

json plain() { return {{"peft_type", "LORA"}, {"r", 8}, {"lora_alpha", 16}, {"target_modules", {"q_proj", "v_proj"}}}; }

}  // namespace

TEST_CASE("settings of plain LoRA are read, and unset settings of other methods have no effect") {
  json config = plain();
  config.update({{"use_rslora", true},
                 {"use_dora", false},
                 {"rank_pattern", json::object()},
                 {"modules_to_save", nullptr},
                 {"lora_bias", nullptr},
                 {"lora_dropout", 0.05},
                 {"init_lora_weights", "gaussian"},
                 {"qalora_group_size", 16},
                 {"key_of_tomorrow", false},
                 {"base_model_name_or_path", "org/model"}});
  const PeftConfig found = read(config);
  CHECK((found.settings.r == 8 && found.settings.alpha == 16 && found.settings.rslora));
  CHECK((found.base == "org/model" && found.settings.dropout == 0.05));
  CHECK(read(plain()).base.empty());
  for (const json& targets : {json(".*proj"), json({"model.layers.0.q_proj", "v_proj"})}) {
    config["target_modules"] = targets;
    CHECK(read(config).settings.targets.empty());
  }
}

TEST_CASE("other methods and settings of the wrong type are refused with their key") {
  for (const auto& [key, value] : std::vector<std::pair<const char*, json>>{{"peft_type", "IA3"},
                                                                            {"use_dora", true},
                                                                            {"bias", "all"},
                                                                            {"modules_to_save", {"lm_head"}},
                                                                            {"rank_pattern", {{"q_proj", 4}}},
                                                                            {"alpha_pattern", {{"q_proj", 4}}},
                                                                            {"layers_to_transform", {0}},
                                                                            {"init_lora_weights", "pissa_niter_4"},
                                                                            {"use_bdlora", {{"nblocks", 2}}},
                                                                            {"key_of_tomorrow", 1},
                                                                            {"target_modules", 3},
                                                                            {"target_modules", json::array()},
                                                                            {"use_rslora", "no"},
                                                                            {"lora_alpha", true},
                                                                            {"r", true},
                                                                            {"r", 4.7},
                                                                            {"r", "8"}}) {
    json config = plain();
    config[key] = value;
    CHECK_THROWS_WITH(read(config), Contains(std::string(": ") + key) && Contains(kAdapterConfigName));
  }
}

}  // namespace mpzero::io
