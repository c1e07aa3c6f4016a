#include <filesystem>
#include <fstream>

#include "app/plan/command/plan_comparison.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero::plan;
using Catch::Contains;

namespace {

const std::vector<std::string> kFlags = {"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H200",
                                         "--nproc_per_node=4", "--nodes=2", "--train_batch_size=32"};

nlohmann::json comparison() {
  std::vector<std::string> flags = kFlags;
  flags.insert(flags.end(), {"--gradient_accumulation_steps=4", "--compare"});
  return json_of(flags);
}

}  // namespace

TEST_CASE("configurations of one global batch are ranked by their steps") {
  const nlohmann::json found = comparison();
  const nlohmann::json& ranked = found["ranked"];
  CHECK(ranked.size() > 10);
  for (size_t i = 0; i < ranked.size(); ++i) {
    CHECK(ranked[i]["train_micro_batch_size_per_gpu"].get<int>() *
              ranked[i]["gradient_accumulation_steps"].get<int>() ==
          4);
    if (i > 0) CHECK(ranked[i]["step_seconds"] >= ranked[i - 1]["step_seconds"]);
  }
}

TEST_CASE("the best one's ds_config.json is one for a run, and plans the same") {
  const nlohmann::json found = comparison();
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "mpzero_best_ds_config.json";
  std::ofstream(file) << found["best_ds_config"].dump();
  const nlohmann::json plan =
      json_of({kFlags[0], kFlags[1], kFlags[2], kFlags[3], "--deepspeed_config=" + file.string()});
  CHECK(plan["step"]["seconds"].get<double>() == Approx(found["ranked"][0]["step_seconds"].get<double>()));
  CHECK(plan["run"]["zero_stage"] == found["ranked"][0]["zero_stage"]);
  std::filesystem::remove(file);
}

TEST_CASE("where nothing fits the comparison says so") {
  const PlanOutput output = output_of(
      {"--model_config=" + kModels + "llama_3_8b.json", "--num_hidden_layers=2000", "--gpu=H200", "--compare"});
  CHECK(output.exit_code == 2);
  CHECK_THAT(output.text, Contains("None fits"));
}
