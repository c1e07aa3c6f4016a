#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "app/plan/command/plan_limit.hpp"
#include "tests/app/error_from.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;
using Catch::Contains;

TEST_CASE("the search finds the largest multiple that fits, for each threshold") {
  constexpr int64_t kStep = 256, kMost = 50 * kStep + 7;
  for (int64_t threshold = 0; threshold < 60 * kStep; threshold += 100) {
    std::vector<int64_t> tried;
    const LargestFit fit = largest_fit(PlanLimit::kSeqLength, {}, kStep, kMost, [&](const CommandLine& line) {
      tried.push_back(line.seq_length);
      CHECK(line.model_overrides.max_position_embeddings == line.seq_length);
      return line.seq_length <= threshold ? "" : std::to_string(line.seq_length);
    });
    const int64_t expected = std::clamp(threshold / kStep, int64_t{1}, int64_t{50}) * kStep;
    CHECK(fit.value == expected);
    CHECK(fit.line.seq_length == expected);
    // The reason is that of the next value, or of the smallest one.
    const int64_t next = threshold < kStep ? kStep : expected + kStep;
    CHECK(fit.problem == (threshold >= 50 * kStep ? "" : std::to_string(next)));
    CHECK(tried.size() <= 14);
  }
}

TEST_CASE("the longest sequences fit, and the next ones leave too little memory") {
  const std::vector<std::string> flags = {"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H100"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return more;
  };
  const nlohmann::json longest = json_of(with({"--max_seq_length"}));
  const int64_t length = longest["run"]["seq_length"];
  CHECK(length > 100'000);
  CHECK(length % 256 == 0);
  CHECK(longest["memory"]["fits"] == true);
  const auto free = [](const nlohmann::json& plan) {
    const nlohmann::json& memory = plan["memory"]["gpu_bytes"];
    return memory["of"].get<double>() - memory["total"].get<double>();
  };
  const auto at = [&](int64_t tokens) {
    const std::string count = std::to_string(tokens);
    return json_of(with({"--seq_length=" + count, "--max_position_embeddings=" + count}));
  };
  CHECK(free(at(length)) == free(longest));
  CHECK(free(at(length)) >= longest["memory"]["gpu_bytes"]["of"].get<double>() / 25);
  CHECK(free(at(length + 256)) < longest["memory"]["gpu_bytes"]["of"].get<double>() / 25);
  const PlanOutput text = plan_output(with({"--max_seq_length"}));
  CHECK_THAT(text.text, Contains("longest sequences: " + std::to_string(length) + " tokens"));
  REQUIRE_FALSE(text.warnings.empty());
  CHECK_THAT(text.warnings.back(), Contains("--max_position_embeddings " + std::to_string(length)));
}

TEST_CASE("a search keeps the warning about a calibration of another GPU") {
  const PlanOutput output =
      output_of({"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H100", "--max_seq_length"});
  CHECK(std::ranges::any_of(
      output.warnings, [](const std::string& warning) { return warning.find("--calibration") != std::string::npos; }));
}

TEST_CASE("the largest model has the most layers that fit") {
  const std::vector<std::string> flags = {"--model_config=" + kModels + "llama_3_8b.json", "--gpu=H100"};
  const auto with = [&](const std::string& more) { return std::vector<std::string>{flags[0], flags[1], more}; };
  const nlohmann::json largest = json_of(with("--largest_model"));
  const int64_t layers = largest["model"]["layers"];
  const auto memory_of = [&](int64_t count) {
    return json_of(with("--num_hidden_layers=" + std::to_string(count)))["memory"];
  };
  CHECK(largest["memory"]["fits"] == true);
  CHECK(memory_of(layers) == largest["memory"]);
  // The next layer leaves less than 4% free, or does not fit.
  const nlohmann::json next = memory_of(layers + 1);
  const double total = next["gpu_bytes"]["of"];
  CHECK((next["fits"] == false || total - next["gpu_bytes"]["total"].get<double>() < total / 25));
}

TEST_CASE("contradicting flags of the searches are refused") {
  const std::string model = "--model_config=" + kModels + "qwen3_0_6b.json";
  for (const auto& [flags, words] : {
           std::tuple{std::vector<std::string>{"--max_seq_length", "--seq_length=4096"}, "--seq_length 4096"},
           std::tuple{std::vector<std::string>{"--largest_model", "--num_hidden_layers=4"}, "--num_hidden_layers 4"},
           std::tuple{std::vector<std::string>{"--largest_model", "--max_seq_length"}, "--max_seq_length"},
           std::tuple{std::vector<std::string>{"--largest_model", "--compare"}, "--compare"},
       }) {
    std::vector<std::string> all = {model, "--gpu=H100"};
    all.insert(all.end(), flags.begin(), flags.end());
    CHECK_THAT(error_from([&] { plan_output(all); }), Contains(words));
  }
}
