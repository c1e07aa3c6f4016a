#include <fmt/ranges.h>

#include <array>
#include <random>

#include "app/plan/estimate/plan_estimate.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero::plan;
using Catch::Contains;

namespace {

std::vector<std::string> llama(const std::string& more) {
  return {"--model_config=" + kModels + "llama_3_8b.json", "--instance=p5e.48xlarge", "--seq_length=4096", more};
}

double seconds(const nlohmann::json& plan) { return plan["step"]["seconds"].get<double>(); }

}  // namespace

TEST_CASE("the parts of a step add up to its time") {
  const nlohmann::json plan = json_of(llama("--nodes=2"));
  const nlohmann::json& step = plan["step"];
  double sum = 0;
  for (const char* part : {"forward_seconds", "backward_seconds", "optimizer_seconds", "exposed_parameters_seconds",
                           "exposed_gradients_seconds", "data_seconds"}) {
    sum += step[part].get<double>();
  }
  CHECK(sum == Approx(seconds(plan)).epsilon(0.01));
  const nlohmann::json& gpu = plan["memory"]["gpu_bytes"];
  int64_t bytes = 0;
  for (const char* part :
       {"parameters", "gradients", "optimizer_states", "units_in_flight", "activations", "workspace", "context"}) {
    bytes += gpu[part].get<int64_t>();
  }
  CHECK(bytes == gpu["total"].get<int64_t>());
}

TEST_CASE("more sequences take longer in total and less time per sequence") {
  const double one = seconds(json_of(llama("--train_micro_batch_size_per_gpu=1")));
  const double four = seconds(json_of(llama("--gradient_accumulation_steps=4")));
  CHECK(four > 2 * one);
  CHECK(four < 4.01 * one);
}

TEST_CASE("slower networks and ranks take longer") {
  const double before = seconds(json_of(llama("--nodes=4")));
  std::vector<std::string> slow = llama("--nodes=4");
  slow.emplace_back("--network_factor=3");
  CHECK(seconds(json_of(slow)) >= before);
  slow.emplace_back("--straggler_factor=1.2");
  CHECK(seconds(json_of(slow)) > 1.1 * before);
  std::vector<std::string> tcp = llama("--nodes=4");
  tcp.emplace_back("--network=socket");
  CHECK(seconds(json_of(tcp)) > before);
}

TEST_CASE("a run fits on PCIe GPUs without the buffer of peer GPUs") {
  const TextFile file(R"({"bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1,
      "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}})");
  CHECK(output_of({"--model_config=" + kModels + "llama_3_1_8b.json", "--gpu=L40S", "--nproc_per_node=8",
                   file.ds_config(), "--recompute=full", "--seq_length=18432", "--max_position_embeddings=131072"})
            .exit_code == 0);
}

TEST_CASE("layer inputs are offloaded only if GPU memory is too small") {
  const auto plan = [](const char* tokens, const char* recompute) {
    return json_of({"--model_config=" + kModels + "llama_3_8b.json", "--instance=p5e.48xlarge",
                    std::string("--seq_length=") + tokens, "--train_micro_batch_size_per_gpu=1",
                    "--max_position_embeddings=4000000", std::string("--recompute=") + recompute});
  };
  const nlohmann::json tiled = plan("262144", "tiled"), host = plan("262144", "host");
  CHECK(host["run"]["recompute"]["host"] == 32);
  // Of 32 inputs [262144, 4096] in bf16 two stay.
  constexpr int64_t kInput = int64_t{262144} * 4096 * 2;
  const auto gpu = [](const nlohmann::json& one) { return one["memory"]["gpu_bytes"]; };
  CHECK(gpu(tiled)["activations"] == 32 * kInput);
  CHECK(gpu(host)["activations"] == 2 * kInput);
  CHECK(gpu(host)["workspace"] == gpu(tiled)["workspace"]);
  CHECK(host["memory"]["host_bytes"]["layer_inputs"] == 8 * 30 * kInput);
  CHECK(tiled["memory"]["host_bytes"]["layer_inputs"] == 0);
  CHECK(host["memory"]["host_bytes"]["total"].get<int64_t>() - tiled["memory"]["host_bytes"]["total"].get<int64_t>() ==
        8 * 30 * kInput);
  const auto busy = [](const nlohmann::json& one, const char* what) {
    return one["step"]["busy_seconds"][what].get<double>();
  };
  CHECK(busy(host, "pcie_down") > busy(tiled, "pcie_down"));
  CHECK(busy(host, "pcie_up") > busy(tiled, "pcie_up"));
  CHECK(seconds(host) == Approx(seconds(tiled)).epsilon(0.02));
  CHECK(plan("65536", "auto")["memory"]["host_bytes"]["layer_inputs"] == 0);
  const nlohmann::json longer = plan("524288", "auto");
  // The host has memory for the inputs of all layers, and for the attention outputs of some.
  const nlohmann::json& levels = longer["run"]["recompute"];
  CHECK(levels["host_attention"] > 0);
  CHECK(levels["host_attention"].get<int>() + levels["host"].get<int>() == 32);
  CHECK(longer["memory"]["host_bytes"]["layer_inputs"] == 8 * 30 * 2 * kInput);
  CHECK(longer["memory"]["host_bytes"]["attention_outputs"] > 0);
  CHECK(longer["memory"]["fits"] == true);
}

TEST_CASE("auto is not slower than any single level that fits") {
  // Returns the number of levels that fit.
  const auto compare = [](const std::vector<std::string>& flags, double most) {
    const auto plan = [&](const std::string& level) {
      std::vector<std::string> all = flags;
      all.insert(all.end(), {"--json", "--recompute=" + level});
      return nlohmann::json::parse(plan_output(all).text);
    };
    int cases = 0;
    const nlohmann::json chosen = plan("auto");
    if (chosen["memory"]["fits"] != true) return cases;
    for (const char* level : {"none", "selective", "attention", "full", "tiled", "host", "host_attention"}) {
      const nlohmann::json other = plan(level);
      if (other["memory"]["fits"] != true) continue;
      ++cases;
      CAPTURE(fmt::format("{}", fmt::join(flags, " ")), level);
      CHECK(seconds(chosen) <= most * seconds(other));
    }
    return cases;
  };
  for (const char* tokens : {"131072", "262144", "524288"}) {
    CHECK(compare({"--model_config=" + kModels + "llama_3_8b.json", "--instance=p5en.48xlarge",
                   std::string("--seq_length=") + tokens, "--max_position_embeddings=4000000",
                   "--deepspeed_config=" MPZERO_SOURCE_DIR "/configs/ds_config_llama3_8b_zero3_offload.json",
                   "--deepspeed_config_yields=true", "--train_micro_batch_size_per_gpu=1",
                   "--gradient_accumulation_steps=1", kCalibration},
                  1.03) > 0);
  }
  const TextFile calibration, ds_config;
  std::mt19937 random(44);
  const auto one_of = [&](const auto& values) { return values[random() % std::size(values)]; };
  int cases = 0;
  for (int round = 0; round < 24; ++round) {
    // First the largest model on the fastest host, where parameters in GPU memory save a fifth of the step.
    const bool largest = round == 0;
    CalibrationData data = read_calibration(MPZERO_SOURCE_DIR "/tests/app/plan/roofline_calibration.json");
    // From a slow host to one on which AdamW is never the bottleneck.
    data.host.adamw_parameters_per_second *= largest ? 20 : one_of(std::array{1, 3, 20});
    write_calibration(calibration.path(), data);
    const int64_t accumulation = largest ? 1 : one_of(std::array{1, 2});
    // By default, gradients are released at some levels, but not at others.
    ds_config.write(fmt::format(R"({{"train_micro_batch_size_per_gpu": 1, "bf16": {{"enabled": true}},
        "gradient_accumulation_steps": {}, "zero_optimization": {{"stage": 3, "offload_param": {{"device": "cpu"}},
        "offload_optimizer": {{"device": "cpu", "release_gradients": {}}}}}}})",
                                accumulation, accumulation == 1 && (largest || random() % 2 == 0)));
    const std::string model =
        largest ? "llama_3_1_70b" : one_of(std::array{"llama_3_1_70b", "llama_3_8b", "qwen2_5_7b"});
    const uint64_t layers = largest ? 80 : 16 + random() % 65;
    const uint64_t thousands = largest ? 4 : 1 + random() % (model == "llama_3_1_70b" ? 12 : 64);
    const std::vector<std::string> flags{
        "--model_config=" + kModels + model + ".json",
        "--gpu=H200",
        fmt::format("--nproc_per_node={}", largest ? 1 : one_of(std::array{1, 1, 2, 8})),
        fmt::format("--num_hidden_layers={}", layers),
        fmt::format("--seq_length={}", 1024 * thousands),
        "--max_position_embeddings=65536",
        ds_config.ds_config(),
        "--calibration=" + calibration.path()};
    CAPTURE(accumulation);
    // Offloading activations must save 5% of a step (cheapest_levels).
    cases += compare(flags, 1.05);
  }
  CHECK(cases > 100);
}

TEST_CASE("auto releases gradients only if no other choice that fits is faster") {
  const TextFile ds_config;
  std::mt19937 random(44);
  const auto one_of = [&](const auto& values) { return values[random() % std::size(values)]; };
  struct Case {
    const char *model, *gpu;
    int ranks, thousands, host;
    bool parameters;
  };
  // Each choice is faster in one of the first cases.
  std::vector<Case> cases{{"llama_3_8b", "H100", 1, 488, 2048, true}, {"llama_3_8b", "L40S", 1, 64, 192, false}};
  for (int i = 0; i < 16; ++i) {
    cases.push_back({.model = one_of(std::array{"llama_3_8b", "qwen2_5_7b", "qwen3_4b"}),
                     .gpu = one_of(std::array{"H200", "H100", "A100", "A100-80GB", "L40S"}),
                     .ranks = one_of(std::array{1, 2, 4}),
                     .thousands = one_of(std::array{16, 32, 64, 128, 256}),
                     .host = one_of(std::array{0, 128, 192, 256, 512, 1024}),
                     .parameters = random() % 2 == 0});
  }
  int kept = 0, released = 0;
  for (const Case& one : cases) {
    const auto plan = [&](const char* release) {
      ds_config.write(fmt::format(R"({{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
          "bf16": {{"enabled": true}}, "zero_optimization": {{"stage": 3, "offload_param": {{"device": "{}"}},
          "offload_optimizer": {{"device": "cpu", "release_gradients": {}}}}}}})",
                                  one.parameters ? "cpu" : "none", release));
      std::vector<std::string> flags{"--model_config=" + kModels + one.model + ".json",
                                     fmt::format("--gpu={}", one.gpu),
                                     fmt::format("--nproc_per_node={}", one.ranks),
                                     fmt::format("--seq_length={}", 1024 * one.thousands),
                                     "--max_position_embeddings=4000000",
                                     ds_config.ds_config()};
      if (one.host > 0) flags.push_back(fmt::format("--host_memory={}", one.host));
      return json_of(flags);
    };
    const auto fits = [](const nlohmann::json& plan) {
      const nlohmann::json& gpu = plan["memory"]["gpu_bytes"];
      const int64_t total = gpu["total"], all = gpu["of"], context = gpu["context"];
      return plan["memory"]["fits"] == true && total <= all - mpzero::memory_margin(all - context);
    };
    const nlohmann::json chosen = plan(R"("auto")"), never = plan("false"), always = plan("true");
    CAPTURE(one.model, one.gpu, one.ranks, one.thousands, one.host, one.parameters);
    for (const nlohmann::json& other : {never, always}) {
      if (!fits(other)) continue;
      REQUIRE(fits(chosen));
      CHECK(seconds(chosen) <= 1.02 * seconds(other));
    }
    if (!fits(never) || !fits(always)) continue;
    if (seconds(never) > 1.02 * seconds(always)) ++released;
    if (seconds(always) > 1.02 * seconds(never)) ++kept;
  }
  CHECK(kept > 0);
  CHECK(released > 0);
}

TEST_CASE("compression reduces the bytes between nodes") {
  const auto of = [&](const std::string& keys) {
    const TextFile file(
        R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "mics_shard_size": 2)" + keys +
        R"(}, "bf16": {"enabled": true}})");
    return json_of({"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H200", "--nproc_per_node=2", "--nodes=2",
                    "--seq_length=512", "--network=socket", file.ds_config()})["step"];
  };
  const nlohmann::json plain = of(""),
                       both = of(R"(, "zero_quantized_gradients": true, "zero_quantized_weights": true)");
  const nlohmann::json& gathers = plain["collectives"]["all-gather between nodes"];
  const nlohmann::json& fewer = both["collectives"]["all-gather between nodes"];
  CHECK(fewer["calls"] == gathers["calls"]);
  // 8 bits and a scale a block instead of 16 bits, and what a collective takes whatever its size.
  CHECK(fewer["seconds"].get<double>() < 0.55 * gathers["seconds"].get<double>());
  CHECK_FALSE(both["collectives"].contains("reduce-scatter between nodes"));
  CHECK(both["collectives"]["all-to-all between nodes"]["calls"] ==
        plain["collectives"]["reduce-scatter between nodes"]["calls"]);
  CHECK(both["seconds"] < plain["seconds"]);
}

TEST_CASE("more hosts are suggested if the states then fit") {
  const PlanOutput output = output_of(
      {"--model_config=" + kModels + "llama_3_8b.json", "--num_hidden_layers=400", "--gpu=H200", "--nproc_per_node=2",
       "--seq_length=512", "--deepspeed_config=" MPZERO_SOURCE_DIR "/configs/ds_config_llama3_8b_zero3_offload.json"});
  CHECK(output.exit_code == 2);
  CHECK_THAT(output.text, Contains("--nodes 2, which multiplies the global batch by 2"));
}

TEST_CASE("more hosts keep the sequence-parallel ranks") {
  const TextFile file(R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
      "bf16": {"enabled": true}, "sequence_parallel_size": 8, "zero_optimization": {"stage": 3}})");
  const PlanOutput output = output_of({"--model_config=" + kModels + "llama_3_1_70b.json", "--instance=p5.48xlarge",
                                       "--nodes=2", "--seq_length=131072", "--recompute=full", file.ds_config()});
  CHECK(output.exit_code == 2);
  CHECK_THAT(output.text, Contains("--nodes 8"));
}

// Oracle: the run of bench/RESULTS.md, "Throughput", which chose its recomputation by itself.
TEST_CASE("a single GPU does not reserve NCCL's memory") {
  const TextFile file(R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4,
      "zero_optimization": {"stage": 2}, "bf16": {"enabled": true, "bf16_optimizer_states": true}})");
  const nlohmann::json gpu = json_of({"--model_config=" + kModels + "qwen2_5_7b.json", "--gpu=H200",
                                      "--seq_length=8192", file.ds_config()})["memory"]["gpu_bytes"];
  const double gibibytes = (gpu["total"].get<double>() - gpu["context"].get<double>()) / (1 << 30);
  CHECK(gibibytes == Approx(133.4).epsilon(0.001));
}

// Oracle: AdamW on the host starts after the backward pass (two thirds of the matmuls), and the next backward pass
// starts after all updates. Without clipping, AdamW overlaps with the backward pass.
TEST_CASE("AdamW on the host does not overlap with the backward pass after a clipped step") {
  const auto step = [](const char* clipping, const char* config) {
    return json_of({"--model_config=" + kModels + "llama_3_8b.json", "--gpu=H200", "--seq_length=4096", clipping,
                    std::string("--deepspeed_config=" MPZERO_SOURCE_DIR "/configs/") + config,
                    "--deepspeed_config_yields=true", "--gradient_accumulation_steps=1"})["step"];
  };
  const char* const offloaded = "ds_config_llama3_8b_zero3_offload.json";
  const nlohmann::json clipped = step("--grad_clip=1", offloaded), unclipped = step("--grad_clip=0", offloaded);
  const nlohmann::json& busy = clipped["busy_seconds"];
  const double in_turn = busy["host_optimizer"].get<double>() + 2.0 / 3 * busy["matmuls"].get<double>();
  CHECK(clipped["clipped_seconds"].get<double>() > in_turn);
  CHECK(clipped["seconds"].get<double>() < in_turn);
  CHECK(clipped["seconds"] == unclipped["seconds"]);
  CHECK(unclipped["clipped_seconds"].is_null());
  CHECK(step("--grad_clip=1", "ds_config_tiny.json")["clipped_seconds"].is_null());
}
