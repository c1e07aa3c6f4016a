#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "app/plan/command/comparison_report.hpp"
#include "tests/app/plan/command/comparison_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero::plan;
using Catch::Contains;

TEST_CASE("reports that no configuration fits") {
  const PlanOutput output = output_of(
      {"--model_config=" + kModels + "llama_3_8b.json", "--num_hidden_layers=2000", "--gpu=H200", "--compare"});
  CHECK(output.exit_code == 2);
  CHECK_THAT(output.text, Contains("No configuration fits"));
}

TEST_CASE("rows contain memory, hours and costs") {
  const TextFile file(R"({"p5.48xlarge": 50})");
  const nlohmann::json found = of_several(
      {"--instances=p5.48xlarge:2,p4d.24xlarge:2", "--train_batch_size=64", "--tokens=1e9", "--prices=" + file.path()});
  const nlohmann::json row = row_of(found, "p5.48xlarge");
  const double hours = 1e9 / (64 * 512) * row["step_seconds"].get<double>() / 3600;
  CHECK(row["hours"].get<double>() == Approx(hours));
  CHECK(row["gpu_hours"].get<double>() == Approx(16 * hours));
  CHECK(row["cost"].get<double>() == Approx(2 * 50 * hours));
  CHECK(row_of(found, "p4d.24xlarge")["cost"].is_null());
  CHECK(row["memory"]["gpu_bytes"] > 0);
  CHECK(row["memory"]["gpu_bytes"] < row["memory"]["of"]);
  CHECK(row["memory"]["host_bytes"] < row["memory"]["of_host"]);
  const nlohmann::json epochs = of_several({"--instances=p5.48xlarge", "--train_batch_size=64", "--epochs=1"});
  CHECK(epochs["ranked"][0]["hours"].is_null());
}

TEST_CASE("columns are aligned, and costs are shown only with prices") {
  const auto lines_of = [](std::vector<std::string> more) {
    more.insert(more.end(), {kFlags[0], "--gpu=H200", "--train_batch_size=8", "--compare"});
    std::istringstream text(output_of(more).text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("  hosts ") || line.starts_with("  1 x ")) lines.push_back(line);
    }
    return lines;
  };
  const std::vector<std::string> lines = lines_of({"--recompute=host_attention"});
  REQUIRE(lines.size() > 2);
  CHECK_THAT(lines.front(), Contains(" groups ") && !Contains("cost"));
  CHECK(std::ranges::any_of(lines, [](const auto& line) { return line.find(" host_attention ") != line.npos; }));
  for (const std::string& line : lines) CHECK(line.size() == lines.front().size());
  CHECK_THAT(lines_of({"--price=3"}).front(), Contains("cost"));
}

TEST_CASE("long steps are shown in minutes or hours") {
  PlanComparison comparison{.ranked = {}, .asked = {"1 x p5.48xlarge"}, .left_out = {}, .warnings = {}};
  for (const double seconds : {99.0, 3234.0, 90000.0}) {
    PlanCandidate one;
    one.machine.name = "p5.48xlarge";
    one.plan.step.seconds = seconds;
    one.plan.tokens_per_step = 1;
    comparison.ranked.push_back(one);
  }
  const std::vector<std::string> lines = describe_comparison(comparison, 0);
  CHECK_THAT(lines[2], Contains(" 99000.0 ms "));
  CHECK_THAT(lines[3], Contains(" 53.9 min "));
  CHECK_THAT(lines[4], Contains(" 25.0 h "));
}

TEST_CASE("rows with the optimizer on the host show the time after a clipped step") {
  const auto ranked = [](const char* clipping) {
    const std::vector<std::string> flags = {"--model_config=" + kModels + "llama_3_8b.json",
                                            "--seq_length=512",
                                            "--json",
                                            "--instances=g6e.12xlarge:4",
                                            "--train_batch_size=64",
                                            clipping};
    return nlohmann::json::parse(plan_output(flags).text)["ranked"];
  };
  int offloaded = 0;
  for (const nlohmann::json& row : ranked("--grad_clip=1")) {
    CHECK(row["clipped_seconds"].is_number() == row["offload_optimizer"]);
    offloaded += row["offload_optimizer"] ? 1 : 0;
  }
  CHECK(offloaded > 0);
  for (const nlohmann::json& row : ranked("--grad_clip=0")) CHECK(row["clipped_seconds"].is_null());
}

TEST_CASE("the requested hosts have a ds_config.json even if other hosts are faster") {
  const std::vector<std::string> flags = {kFlags[0], "--seq_length=512", "--train_batch_size=64", "--compare"};
  const auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), more);
    return plan_output(all).text;
  };
  CHECK_THAT(with({"--instance=p4d.24xlarge"}),
             Contains("configuration on the requested hosts, for 1 x p4d.24xlarge") &&
                 Contains("configuration overall, for 1 x p5"));
  CHECK_THAT(with({"--gpu=H200"}),
             Contains("configuration on the requested hosts, for 1 x H200") && !Contains("configuration overall"));
  const std::string text = with({"--gpu=H200"});
  CHECK(nlohmann::json::parse(text.substr(text.find("\n{\n"))).contains("zero_optimization"));
  const nlohmann::json found = nlohmann::json::parse(with({"--instance=p4d.24xlarge", "--json"}));
  CHECK(found["asked_hosts"] == "1 x p4d.24xlarge");
  CHECK(found["best_hosts"] != found["asked_hosts"]);
  const nlohmann::json asked = row_of(found, "p4d.24xlarge");
  CHECK(found["asked_ds_config"]["train_micro_batch_size_per_gpu"] == asked["train_micro_batch_size_per_gpu"]);
  CHECK(found["asked_ds_config"]["zero_optimization"]["stage"] == asked["zero_stage"]);
}
