#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "app/plan/command/plan_limit.hpp"
#include "base/error.hpp"
#include "tests/app/error_from.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;
using Catch::Contains;

namespace {

const std::string kHostMemory = "--host_memory=2048";

}  // namespace

TEST_CASE("the search finds the largest multiple that fits, for each threshold") {
  constexpr int64_t kStep = 256, kMost = 50 * kStep + 7;
  for (const bool throws : {false, true}) {
    for (int64_t threshold = kStep; threshold < 60 * kStep; threshold += 100) {
      int tried = 0, described = 0;
      const LargestFit fit = largest_fit(kStep, kMost, [&](int64_t value) -> Problem {
        ++tried;
        if (value <= threshold) return nullptr;
        if (throws) throw UserError(std::to_string(value));
        return [&described, value] {
          ++described;
          return std::to_string(value);
        };
      });
      const int64_t expected = std::min(threshold / kStep, int64_t{50}) * kStep;
      CHECK((fit.fits && fit.value == expected));
      CHECK(fit.problem == (threshold >= 50 * kStep ? "" : std::to_string(expected + kStep)));
      CHECK(tried <= 14);
      CHECK(described <= 1);
    }
  }
}

TEST_CASE("a search without a value that fits returns the smallest one") {
  const LargestFit fit =
      largest_fit(256, 1 << 20, [](int64_t value) -> Problem { return [value] { return std::to_string(value); }; });
  CHECK((!fit.fits && fit.value == 256 && fit.problem == "256"));
  const auto refuse = [](int64_t) -> Problem { throw UserError("unknown key"); };
  CHECK(error_from([&] { largest_fit(256, 1 << 20, refuse); }) == "unknown key");
  const PlanOutput none = plan_output({"--model_config=" + kModels + "llama_3_1_70b.json", "--gpu=H100", kHostMemory,
                                       "--recompute=none", "--max_seq_length"});
  CHECK(none.exit_code != 0);
  CHECK_THAT(none.text, Contains("256 tokens") && !Contains("maximum sequence length"));
}

// Oracle: each level on its own.
TEST_CASE("automatic recomputation fits the longest sequences of all levels") {
  for (const auto& [model, gpu] : {std::pair("mistral_7b", "H100"), {"qwen3_1_7b", "L40S"}, {"qwen3_tiny", "H100"}}) {
    const auto longest = [&](const std::string& level) -> int64_t {
      return json_of({"--model_config=" + kModels + model + ".json", std::string("--gpu=") + gpu, kHostMemory,
                      "--recompute=" + level, "--max_seq_length"})["run"]["seq_length"];
    };
    const int64_t automatic = longest("auto");
    INFO(model << " on " << gpu);
    for (const char* const level : {"none", "full", "tiled", "host"}) CHECK(automatic >= longest(level));
  }
}

TEST_CASE("the longest sequences are a multiple of any number of sequence-parallel ranks") {
  for (const int ranks : {5, 7, 8, 14}) {
    const TextFile file(R"({"train_micro_batch_size_per_gpu": 1, "sequence_parallel_size": )" + std::to_string(ranks) +
                        "}");
    std::vector<std::string> flags = {
        "--model_config=" + kModels + (ranks % 7 == 0 ? "qwen2_5_0_5b" : "qwen3_0_6b") + ".json",
        "--gpu=H100",
        kHostMemory,
        "--nproc_per_node=" + std::to_string(ranks),
        file.ds_config(),
        "--max_seq_length"};
    if (ranks == 5) flags.insert(flags.end(), {"--num_attention_heads=20", "--num_key_value_heads=4"});
    CAPTURE(ranks);
    const nlohmann::json plan = json_of(flags);
    CHECK(plan["memory"]["fits"] == true);
    CHECK(plan["run"]["seq_length"].get<int64_t>() % (256 * ranks) == 0);
  }
}

TEST_CASE("a search chooses micro-batches that leave the margin") {
  const std::vector<std::string> flags = {"--model_config=" + kModels + "llama_3_8b.json", "--gpu=H100", kHostMemory,
                                          "--recompute=full", "--train_batch_size=25"};
  const auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), more);
    return json_of(all);
  };
  const nlohmann::json longest = with({"--max_seq_length"});
  const nlohmann::json one =
      with({"--max_seq_length", "--train_micro_batch_size_per_gpu=1", "--gradient_accumulation_steps=25"});
  CHECK(longest["run"]["seq_length"] == one["run"]["seq_length"]);
  CHECK(longest["largest"].get<std::string>().find("tokens") != std::string::npos);
}

TEST_CASE("searches refuse encoder-decoder models") {
  for (const char* const search : {"--max_seq_length", "--largest_model"}) {
    CHECK_THAT(error_from([&] {
                 plan_output({"--model_config=" MPZERO_SOURCE_DIR "/assets/tiny_t5/config.json", "--gpu=H100",
                              "--source_length=128", search});
               }),
               Contains(search));
  }
}

TEST_CASE("the longest sequences fit, and the next ones leave too little memory") {
  const std::vector<std::string> flags = {"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H100", kHostMemory};
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
  const nlohmann::json& bytes = longest["memory"]["gpu_bytes"];
  const double margin = (bytes["of"].get<double>() - bytes["context"].get<double>()) / 25;
  const auto at = [&](int64_t tokens) {
    const std::string count = std::to_string(tokens);
    return json_of(with({"--seq_length=" + count, "--max_position_embeddings=" + count}));
  };
  CHECK(free(at(length)) == free(longest));
  CHECK(free(at(length)) >= margin);
  CHECK(free(at(length + 256)) < margin);
  const PlanOutput text = plan_output(with({"--max_seq_length"}));
  CHECK_THAT(text.text, Contains("maximum sequence length: " + std::to_string(length) + " tokens"));
  REQUIRE_FALSE(text.warnings.empty());
  CHECK_THAT(text.warnings.back(), Contains("--max_position_embeddings " + std::to_string(length)));
}

TEST_CASE("a search keeps the warning about a calibration of another GPU") {
  const PlanOutput output =
      output_of({"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H100", kHostMemory, "--max_seq_length"});
  CHECK(std::ranges::any_of(
      output.warnings, [](const std::string& warning) { return warning.find("--calibration") != std::string::npos; }));
}

TEST_CASE("the largest model has the most layers that fit") {
  const auto with = [&](const std::string& more) {
    return std::vector<std::string>{"--model_config=" + kModels + "llama_3_8b.json", "--gpu=H100", "--host_memory=1024",
                                    more};
  };
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

TEST_CASE("the memory of the host limits the largest model with offload") {
  const TextFile file(R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3,
      "offload_optimizer": {"device": "cpu"}}})");
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"--model_config=" + kModels + "llama_3_8b.json", "--gpu=H100", "--largest_model", file.ds_config()});
    return more;
  };
  CHECK_THAT(error_from([&] { plan_output(with({})); }), Contains("--host_memory"));
  int64_t most = 0;
  for (const int64_t gibibytes : {32, 64, 128}) {
    const nlohmann::json plan = json_of(with({"--host_memory=" + std::to_string(gibibytes)}));
    const int64_t layers = plan["model"]["layers"];
    CAPTURE(gibibytes, layers);
    CHECK(plan["memory"]["host_bytes"]["of"] == gibibytes << 30);
    CHECK(plan["memory"]["host_bytes"]["total"].get<int64_t>() <= gibibytes << 30);
    CHECK(layers > most);
    most = layers;
    CHECK_THAT(plan["largest"].get<std::string>(), Contains("a host needs") && Contains("for 1 rank,"));
  }
  // More layers fit if the host has room for released gradients and offloaded activations.
  file.write(R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3,
      "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}})");
  const std::string largest = json_of(with({"--seq_length=8192", "--host_memory=2000"}))["largest"];
  CHECK_THAT(largest, Contains("a host needs") && Contains("for 1 rank,"));
}

TEST_CASE("a search that may use unknown host memory is refused") {
  const TextFile file(R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}})");
  const std::vector<std::string> model = {"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H100"};
  for (const char* const search : {"--max_seq_length", "--largest_model"}) {
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.end(), model.begin(), model.end());
      more.emplace_back(search);
      return more;
    };
    const std::vector<std::vector<std::string>> refused = {{}, {"--recompute=full"}, {file.ds_config()}};
    for (const std::vector<std::string>& flags : refused) {
      CHECK_THAT(error_from([&] { plan_output(with(flags)); }), Contains(search) && Contains("--host_memory"));
    }
    const nlohmann::json on_gpu = json_of(with({file.ds_config(), "--recompute=full"}));
    CHECK(on_gpu["memory"]["fits"] == true);
    CHECK(on_gpu["memory"]["host_bytes"]["total"] == 0);
  }
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
