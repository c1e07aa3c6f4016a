#include <filesystem>
#include <fstream>
#include <map>
#include <set>

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

// Planned one by one: micro-batch 90 of 180 is the fastest of all divisors; the six smallest end at 6.
TEST_CASE("micro-batches are tried up to the largest that fits") {
  const nlohmann::json found = json_of({kFlags[0], "--instance=p5.48xlarge", "--seq_length=512",
                                        "--train_batch_size=1440", "--gradient_accumulation_steps=180", "--compare"});
  std::set<int> sizes;
  for (const auto& one : found["ranked"]) {
    if (one["instance"] == "p5.48xlarge") sizes.insert(one["train_micro_batch_size_per_gpu"].get<int>());
  }
  CHECK(sizes == std::set<int>{1, 2, 3, 5, 9, 15, 30, 45, 90, 180});
}

TEST_CASE("a measured rate of the network is of the asked hosts alone, and the others are named") {
  const std::vector<std::string> warnings =
      output_of({kFlags[0], "--instance=g6e.12xlarge", "--nodes=2", "--seq_length=512", "--train_batch_size=8",
                 "--network_rate=1.0", "--compare"})
          .warnings;
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Contains("--network_rate 1 is of the asked hosts alone: ") && Contains("g6e.24xlarge"));
}

TEST_CASE("offloading is tried where a configuration fits only with recomputation") {
  const nlohmann::json found =
      json_of({"--model_config=" + kModels + "qwen2_5_7b.json", "--gpu=H200", "--nproc_per_node=1", "--seq_length=8192",
               "--train_batch_size=7", "--gradient_accumulation_steps=7", "--compare"});
  std::map<bool, double> fastest;
  for (const auto& one : found["ranked"]) fastest.try_emplace(one["offload_optimizer"], one["step_seconds"]);
  CHECK(fastest.size() == 2);
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

TEST_CASE("the best one's ds_config.json trains as the run that was asked for") {
  std::vector<std::string> flags = kFlags;
  flags.insert(flags.end(), {"--gradient_accumulation_steps=4", "--learning_rate=3e-4", "--grad_clip=0.7",
                             "--warmup_steps=20", "--max_steps=500", "--compare"});
  const nlohmann::json found = json_of(flags);
  const nlohmann::json& config = found["best_ds_config"];
  CHECK(config["optimizer"]["type"] == "AdamW");
  CHECK(config["optimizer"]["params"]["lr"] == 3e-4);
  CHECK(config["optimizer"]["params"]["betas"] == nlohmann::json({0.9, 0.95}));
  CHECK(config["optimizer"]["params"]["weight_decay"] == 0.1);
  CHECK(config["gradient_clipping"] == 0.7);
  CHECK(config["scheduler"]["type"] == "WarmupCosineLR");
  CHECK(config["scheduler"]["params"]["warmup_num_steps"] == 20);
  CHECK(config["scheduler"]["params"]["total_num_steps"] == 500);
  CHECK(config["scheduler"]["params"]["cos_min_ratio"] == 0);
  CHECK(config["scheduler"]["params"]["warmup_type"] == "log");
  const auto steps = config["gradient_accumulation_steps"].get<int>();
  const nlohmann::json leave_out =
      steps == 4 ? nlohmann::json::array() : nlohmann::json({"--gradient_accumulation_steps 4"});
  CHECK(found["best_leave_out"] == leave_out);
}

TEST_CASE("the file of the best has the FP8 that it was planned with") {
  std::vector<std::string> flags = kFlags;
  flags.emplace_back("--compare");
  CHECK_FALSE(json_of(flags)["best_ds_config"].contains("fp8"));
  flags.emplace_back("--fp8=rowwise");
  CHECK(json_of(flags)["best_ds_config"]["fp8"] == nlohmann::json({{"enabled", true}, {"recipe", "rowwise"}}));
}

TEST_CASE("without --tokens the steps count, and a price that is missing is named") {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "mpzero_prices_of_others.json";
  std::ofstream(file) << R"({"p5.48xlarge": 55.04})";
  std::vector<std::string> flags = kFlags;
  flags.insert(flags.end(), {"--compare", "--max_steps=100000"});
  std::vector<std::string> priced = flags;
  priced.emplace_back("--price=10");
  const PlanOutput costs = output_of(priced);
  std::vector<std::string> tokens = priced;
  tokens.emplace_back("--tokens=6553600000");  // 100,000 x 32 x 2,048
  CHECK(costs.text == output_of(tokens).text);
  flags.push_back("--prices=" + file.string());
  const PlanOutput missing = output_of(flags);
  REQUIRE_FALSE(missing.warnings.empty());
  CHECK_THAT(missing.warnings.back(), Contains("has no price of H200"));
  const PlanOutput alone = output_of({kFlags[0], "--gpu=H200", "--prices=" + file.string()});
  REQUIRE_FALSE(alone.warnings.empty());
  CHECK_THAT(alone.warnings.back(), Contains("has no price of H200"));
  std::filesystem::remove(file);
}

TEST_CASE("GPUs without FP8 are left out of its comparison") {
  const nlohmann::json found =
      nlohmann::json::parse(plan_output({kFlags[0], "--instance=p5.48xlarge", "--compare", "--json", "--fp8"}).text);
  CHECK_FALSE(found["ranked"].empty());
  for (const nlohmann::json& one : found["ranked"]) CHECK(one["instance"] != "p4d.24xlarge");
  std::string left_out;
  for (const nlohmann::json& line : found["left_out"]) left_out += line.get<std::string>() + "\n";
  CHECK_THAT(left_out, Contains("p4d.24xlarge") && Contains("A100 has no products of FP8 tensorwise"));
}

TEST_CASE("--price is of the asked hosts alone") {
  const PlanOutput output = output_of({kFlags[0], "--instance=p5.48xlarge", "--compare", "--price=50"});
  REQUIRE_FALSE(output.warnings.empty());
  CHECK_THAT(output.warnings.back(), Contains("--price 50") && Contains("p5e.48xlarge"));
}

TEST_CASE("a ranking of a measured host beside estimated ones says so") {
  // 70 billion parameters need the host's memory on all of them; p6-b300.48xlarge has no rate of it in the table.
  const PlanOutput output = output_of({"--model_config=" + kModels + "llama_3_8b.json", "--num_hidden_layers=360",
                                       "--instance=p6-b300.48xlarge", "--compare"});
  REQUIRE_FALSE(output.warnings.empty());
  CHECK_THAT(output.warnings.back(), Contains("measured on some of these hosts and an estimate"));
}

TEST_CASE("what a calibration has no times of is left out, and does not count as what does not fit") {
  // Its rate in fp32 is not known.
  const RenamedCalibration calibration("NVIDIA T4");
  std::vector<std::string> flags = {kFlags[0], "--gpu=H200", "--bf16=false", "--compare", calibration.flag()};
  const PlanOutput output = plan_output(flags);
  CHECK(output.exit_code == 2);
  CHECK_THAT(output.text, Contains("left out") && Contains("renamed_calibration") && Contains("in fp32") &&
                              Contains("None can be ranked") && !Contains("None fits"));
  flags.emplace_back("--json");
  const nlohmann::json found = nlohmann::json::parse(plan_output(flags).text);
  CHECK(found["ranked"].empty());
  CHECK_THAT(found["left_out"][0].get<std::string>(), Contains("configuration") && Contains("in fp32"));
  CHECK(found["without_times"].get<int>() > 0);
}

TEST_CASE("where nothing fits the comparison says so") {
  const PlanOutput output = output_of(
      {"--model_config=" + kModels + "llama_3_8b.json", "--num_hidden_layers=2000", "--gpu=H200", "--compare"});
  CHECK(output.exit_code == 2);
  CHECK_THAT(output.text, Contains("None fits"));
}

TEST_CASE("--recompute full is tried beside what fits, and is slower") {
  const std::vector<std::string> asked = {kFlags[0], "--gpu=H200", "--train_batch_size=8",
                                          "--train_micro_batch_size_per_gpu=8", "--recompute=full"};
  std::vector<std::string> flags = asked;
  flags.emplace_back("--compare");
  std::map<std::string, double> steps;  // of one micro-batch, by --recompute
  const nlohmann::json found = json_of(flags);
  for (const nlohmann::json& one : found["ranked"]) {
    if (one["train_micro_batch_size_per_gpu"] == 8) steps[one["recompute"]] = one["step_seconds"];
  }
  // All of it fits without: a forward of the layers more.
  CHECK(steps.size() == 2);
  CHECK(steps.at("full") > 1.1 * steps.at("auto"));
  CHECK(json_of(asked)["run"]["recompute"]["full"] == 28);
}

TEST_CASE("--prices has the costs of all instances that it names") {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "mpzero_prices_of_several.json";
  std::ofstream(file) << R"({"p5.48xlarge": 50, "p5e.48xlarge": 60})" << std::flush;
  const nlohmann::json found = nlohmann::json::parse(
      plan_output({kFlags[0], "--instance=p5.48xlarge", "--compare", "--json", "--prices=" + file.string()}).text);
  std::filesystem::remove(file);
  std::map<std::string, nlohmann::json> prices;
  for (const nlohmann::json& one : found["ranked"]) prices[one["instance"]] = one["price"];
  CHECK(prices["p5.48xlarge"] == 50);
  CHECK(prices["p5e.48xlarge"] == 60);
  REQUIRE(prices.contains("p4d.24xlarge"));
  CHECK(prices["p4d.24xlarge"].is_null());
}
