#include <map>
#include <set>

#include "app/plan/command/plan_comparison.hpp"
#include "tests/app/error_from.hpp"
#include "tests/app/plan/command/comparison_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero::plan;
using Catch::Contains;

TEST_CASE("configurations with the same global batch are ranked by step time") {
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

// The six smallest divisors end at 6.
TEST_CASE("micro-batches up to the largest that fits are compared") {
  const nlohmann::json found =
      json_of({"--model_config=" + kModels + "qwen3_tiny.json", "--instances=p5.48xlarge", "--seq_length=512",
               "--train_batch_size=480", "--gradient_accumulation_steps=60", "--compare"});
  std::set<int> sizes;
  for (const auto& one : found["ranked"]) sizes.insert(one["train_micro_batch_size_per_gpu"].get<int>());
  CHECK(sizes == std::set<int>{1, 2, 3, 5, 10, 15, 30, 60});
}

TEST_CASE("a measured network rate and a price apply only to the requested hosts, and other hosts are listed") {
  const std::vector<std::string> warnings =
      output_of({kFlags[0], "--instance=g6e.12xlarge", "--nodes=2", "--seq_length=512", "--train_batch_size=8",
                 "--network_rate=1.0", "--compare"})
          .warnings;
  REQUIRE(warnings.size() == 2);
  CHECK_THAT(warnings[0], Contains("--calibration") && Contains("NVIDIA H200, but the plan is for L40S"));
  CHECK_THAT(warnings[1], Contains("--network_rate 1") && Contains("g6e.24xlarge"));
  const PlanOutput priced = output_of({kFlags[0], "--instance=p5.48xlarge", "--compare", "--price=50"});
  REQUIRE_FALSE(priced.warnings.empty());
  CHECK_THAT(priced.warnings.back(), Contains("--price 50") && Contains("p5e.48xlarge"));
}

TEST_CASE("offloading is tried if a configuration fits only with recomputation") {
  const nlohmann::json found =
      json_of({"--model_config=" + kModels + "qwen2_5_7b.json", "--gpu=H200", "--nproc_per_node=1", "--seq_length=8192",
               "--train_batch_size=7", "--gradient_accumulation_steps=7", "--compare"});
  std::map<bool, double> fastest;
  for (const auto& one : found["ranked"]) fastest.try_emplace(one["offload_optimizer"], one["step_seconds"]);
  CHECK(fastest.size() == 2);
}

TEST_CASE("without --tokens, steps are compared, and missing prices are reported") {
  const TextFile file(R"({"p5.48xlarge": 55.04})");
  std::vector<std::string> flags = kFlags;
  flags.insert(flags.end(), {"--compare", "--max_steps=100000"});
  std::vector<std::string> priced = flags;
  priced.emplace_back("--price=10");
  const PlanOutput costs = output_of(priced);
  std::vector<std::string> tokens = priced;
  tokens.emplace_back("--tokens=6553600000");  // 100,000 x 32 x 2,048
  CHECK_THROWS_AS(output_of(tokens), UserError);
  std::erase(tokens, "--max_steps=100000");
  const auto cost = [](const std::string& text) { return text.substr(0, text.find("ds_config.json")); };
  CHECK(cost(costs.text) == cost(output_of(tokens).text));
  flags.push_back("--prices=" + file.path());
  const PlanOutput missing = output_of(flags);
  REQUIRE_FALSE(missing.warnings.empty());
  CHECK_THAT(missing.warnings.back(), Contains("has no price for H200"));
  const PlanOutput alone = output_of({kFlags[0], "--gpu=H200", "--prices=" + file.path()});
  REQUIRE_FALSE(alone.warnings.empty());
  CHECK_THAT(alone.warnings.back(), Contains("has no price for H200"));
}

TEST_CASE("GPUs without FP8 are excluded from FP8 comparisons") {
  const nlohmann::json found =
      nlohmann::json::parse(plan_output({kFlags[0], "--instance=p5.48xlarge", "--compare", "--json", "--fp8"}).text);
  CHECK_FALSE(found["ranked"].empty());
  for (const nlohmann::json& one : found["ranked"]) CHECK(one["instance"] != "p4d.24xlarge");
  std::string left_out;
  for (const nlohmann::json& line : found["left_out"]) left_out += line.get<std::string>() + "\n";
  CHECK_THAT(left_out, Contains("p4d.24xlarge") && Contains("A100 does not support FP8 recipe tensorwise"));
}

TEST_CASE("a ranking that mixes measured and estimated hosts is marked") {
  // 70 billion parameters need the host's memory on all of them; p6-b300.48xlarge has no rate of it in the table.
  const PlanOutput output =
      output_of({"--model_config=" + kModels + "llama_3_8b.json", "--hidden_size=16384", "--intermediate_size=53248",
                 "--num_attention_heads=128", "--num_hidden_layers=22", "--instance=p6-b300.48xlarge", "--compare"});
  REQUIRE_FALSE(output.warnings.empty());
  CHECK_THAT(output.warnings.back(), Contains("measured on some of these hosts and estimated"));
}

TEST_CASE("configurations without calibrated times are skipped and do not count as too large") {
  // Its rate in fp32 is not known.
  const RenamedCalibration calibration("NVIDIA T4");
  std::vector<std::string> flags = {kFlags[0], "--gpu=H200", "--bf16=false", "--compare", calibration.flag()};
  const PlanOutput output = plan_output(flags);
  CHECK(output.exit_code == 2);
  CHECK_THAT(output.text, Contains("excluded: ") && Contains("renamed_calibration") && Contains("in fp32") &&
                              Contains("can be ranked") && !Contains("No configuration fits"));
  flags.emplace_back("--json");
  const nlohmann::json found = nlohmann::json::parse(plan_output(flags).text);
  CHECK(found["ranked"].empty());
  CHECK_THAT(found["left_out"][0].get<std::string>(), Contains("configuration") && Contains("in fp32"));
  CHECK(found["without_times"].get<int>() > 0);
}

TEST_CASE("configurations that a run would refuse are reported, and larger micro-batches are still tried") {
  // 300,000 micro-batches of one sequence are more than a step can have, 150,000 of two are not.
  const std::vector<std::string> flags = {kFlags[0],   "--gpu=H200", "--seq_length=128", "--train_batch_size=300000",
                                          "--compare", kCalibration};
  const PlanOutput output = plan_output(flags);
  CHECK(output.exit_code == 0);
  CHECK_THAT(output.text, Contains("excluded: 2 configurations on 1 x H200: its ds_config.json: "
                                   "gradient_accumulation_steps 300000 exceeds"));
  std::vector<std::string> as_json = flags;
  as_json.emplace_back("--json");
  const nlohmann::json found = nlohmann::json::parse(plan_output(as_json).text);
  CHECK(found["refused"] == 2);  // with the states on the GPU, and on the host
  CHECK(found["ranked"].size() > 3);
}

TEST_CASE("--instances compares only these hosts, by tokens per second") {
  const nlohmann::json found =
      of_several({"--instances=p4d.24xlarge:2,g6e.12xlarge:4,p5.48xlarge", "--train_batch_size=64", "--compare"});
  CHECK(found["asked"] == nlohmann::json({"2 x p4d.24xlarge", "4 x g6e.12xlarge", "1 x p5.48xlarge"}));
  std::map<std::string, int> ranks;
  double last = 0;
  for (const nlohmann::json& one : found["ranked"]) {
    ranks[one["instance"]] = one["ranks"];
    CHECK(one["train_batch_size"] == 64);
    CHECK(one["step_seconds"].get<double>() >= last);
    last = one["step_seconds"];
  }
  CHECK(ranks == std::map<std::string, int>{{"g6e.12xlarge", 16}, {"p4d.24xlarge", 16}, {"p5.48xlarge", 8}});
  CHECK(found["best_hosts"] == found["asked_hosts"]);
  const nlohmann::json one = of_several({"--instances=p5.48xlarge", "--train_batch_size=64"});
  CHECK(one["ranked"].size() > 1);
  for (const nlohmann::json& row : one["ranked"]) CHECK(row["instance"] == "p5.48xlarge");
  CHECK(one["left_out"].empty());
  CHECK_THAT(plan_output({kFlags[0], "--seq_length=512", "--instances=p5.48xlarge", "--train_batch_size=64"}).text,
             !Contains("alternative"));
}

TEST_CASE("hosts whose ranks do not divide the batch use the next larger batch and are ranked by tokens") {
  const std::vector<std::string> flags = {"--instances=p4d.24xlarge:3,p5.48xlarge:1", "--train_batch_size=64",
                                          "--tokens=1e9"};
  const nlohmann::json found = of_several(flags);
  CHECK(found["train_batch_size"] == 64);
  CHECK(row_of(found, "p4d.24xlarge")["train_batch_size"] == 72);
  CHECK(row_of(found, "p5.48xlarge")["train_batch_size"] == 64);
  double last = 0;
  for (const nlohmann::json& one : found["ranked"]) {
    if (one["hours"].is_null()) continue;  // the step is vague
    CHECK(one["hours"].get<double>() >= last);
    last = one["hours"];
  }
  CHECK(last > 0);
  std::vector<std::string> as_text = {kFlags[0], "--seq_length=512"};
  as_text.insert(as_text.end(), flags.begin(), flags.end());
  const PlanOutput output = plan_output(as_text);
  REQUIRE_FALSE(output.warnings.empty());
  CHECK_THAT(output.warnings.back(), Contains("global batch of 64") && Contains("3 x p4d.24xlarge has 72"));
  CHECK_THAT(output.text, Contains("x 24 ") && Contains("x 8 "));
  // Its own plan is the same.
  const nlohmann::json row = row_of(found, "p4d.24xlarge");
  const nlohmann::json alone = of_several({"--instances=p4d.24xlarge:3", "--train_batch_size=72", "--tokens=1e9"});
  CHECK(row["step_seconds"] == row_of(alone, "p4d.24xlarge")["step_seconds"]);
}

TEST_CASE("a batch that suits no host of a comparison is refused with a remedy") {
  const auto error = [](const std::vector<std::string>& more) { return mpzero::error_from([&] { of_several(more); }); };
  CHECK_THAT(error({"--instances=p4d.24xlarge:3,p5.48xlarge:3", "--train_batch_size=64"}),
             Contains("24 ranks") && Contains("--train_batch_size") && Contains("--deepspeed_config_yields true"));
}

TEST_CASE("hosts without a calibration are skipped, and reported if no host is ranked") {
  const PlanOutput output =
      plan_output({kFlags[0], "--seq_length=512", "--instances=g5.48xlarge,p5.48xlarge", "--train_batch_size=64"});
  CHECK(output.exit_code == 0);
  CHECK_THAT(output.text, Contains("1 x g5.48xlarge: no kernel times for any configuration that fits") &&
                              Contains("no calibration for A10G") && Contains("1 x p5.48xlarge"));
}

TEST_CASE("--recompute full is also tried for configurations that fit without it, and is slower") {
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

TEST_CASE("--prices shows the costs of all listed instances") {
  const TextFile file(R"({"p5.48xlarge": 50, "p5e.48xlarge": 60})");
  const nlohmann::json found = nlohmann::json::parse(
      plan_output({kFlags[0], "--instance=p5.48xlarge", "--compare", "--json", "--prices=" + file.path()}).text);
  std::map<std::string, nlohmann::json> prices;
  for (const nlohmann::json& one : found["ranked"]) prices[one["instance"]] = one["price"];
  CHECK(prices["p5.48xlarge"] == 50);
  CHECK(prices["p5e.48xlarge"] == 60);
  REQUIRE(prices.contains("p4d.24xlarge"));
  CHECK(prices["p4d.24xlarge"].is_null());
  // The lowest cost of the ranked configurations with a price.
  std::map<double, std::string> costs;
  for (const nlohmann::json& one : found["ranked"]) {
    if (!one["cost"].is_null()) costs[one["cost"]] = fmt::format("1 x {}", one["instance"].get<std::string>());
  }
  REQUIRE(costs.size() > 1);
  CHECK(found["cheapest_hosts"] == costs.begin()->second);
}
