#include <filesystem>
#include <fstream>

#include "app/plan/command/plan_command.hpp"
#include "tests/app/error_from.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;
using Catch::Contains;

TEST_CASE("a plan needs no data, no GPU and no MPI") {
  const PlanOutput output = output_of({"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H200"});
  CHECK(output.exit_code == 0);
  CHECK_THAT(output.text, Contains("tokens/s/GPU") && Contains("Bottleneck") && Contains("Checkpoint"));
}

TEST_CASE("a plan of FP8 counts its memory, and says that its times are those of bf16") {
  const std::vector<std::string> flags = {"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H200", "--json"};
  const auto memory = [](const PlanOutput& output) {
    return nlohmann::json::parse(output.text)["memory"]["gpu_bytes"].dump();
  };
  const PlanOutput bf16 = plan_output(flags);
  const PlanOutput fp8 = plan_output({flags[0], flags[1], flags[2], "--fp8"});
  CHECK_THAT(fp8.warnings.back(), Contains("its times are those of bf16"));
  CHECK(memory(fp8) != memory(bf16));
}

TEST_CASE("a GPU without a calibration has a plan of its memory") {
  const std::vector<std::string> flags = {"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=B200"};
  const PlanOutput output = plan_output(flags);
  CHECK(output.exit_code == 0);
  CHECK_THAT(output.text, Contains("Memory of each GPU") && Contains("memory alone is planned") && !Contains("Step:"));
  CHECK_THAT(output.warnings.back(), Contains("no calibration for B200") && Contains("--calibration"));
  const nlohmann::json json = nlohmann::json::parse(plan_output({flags[0], flags[1], "--json"}).text);
  CHECK(json["calibration"].is_null());
  CHECK(json["step"].is_null());
  CHECK(json["memory"]["fits"] == true);
  CHECK_THAT(error_from([&] { plan_output({flags[0], flags[1], "--compare"}); }), Contains("no calibration"));
}

TEST_CASE("a GPU whose host was not measured takes that of an instance, and says so") {
  for (const char* gpu : {"H100", "A100", "L40S"}) {
    const PlanOutput output = plan_output({"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu", gpu});
    INFO(gpu);
    CHECK(output.exit_code == 0);
    CHECK_THAT(output.text, Contains("AdamW on the host") && Contains("48xlarge, an estimate") ||
                                Contains("p4d.24xlarge, an estimate"));
  }
}

TEST_CASE("a plan says why it has its layout, which is chosen under its assumptions") {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "mpzero_plan_of_nodes.json";
  std::ofstream(file)
      << R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "bf16": {"enabled": true},
                                          "zero_optimization": {"stage": 3, "mics_shard_size": "auto"}})"
      << std::flush;
  const auto text = [&](const std::string& more) {
    return output_of({"--model_config=" + kModels + "llama_3_8b.json", "--instance=p5e.48xlarge", "--nodes=2",
                      "--network=socket", "--network_rate=200", "--deepspeed_config=" + file.string(), more})
        .text;
  };
  // 641 and 668 ms are as long, within the error; 4.3 and 8.0 s are not.
  CHECK_THAT(text("--network_factor=1"), Contains("Between nodes: ") && !Contains("by the plan"));
  CHECK_THAT(text("--network_factor=20"), Contains("Between nodes: ") && Contains("by the plan"));
  std::filesystem::remove(file);
}

TEST_CASE("help is no error") { CHECK_THAT(plan_output({"--help"}).text, Contains("mpzero plan")); }

TEST_CASE("flags that a plan cannot use are one sentence") {
  const auto error = [](std::vector<std::string> flags) { return error_from([&] { output_of(flags); }); };
  CHECK_THAT(error({"--gpu=H200", "--world_size=4"}), Contains("--world_size 4"));
  CHECK_THAT(error({"--gpu=H200", "--device=cpu"}), Contains("--device cpu") && Contains("--dry_run"));
  CHECK_THAT(error({"--instance=p5.48xlarge", "--nproc_per_node=2"}), Contains("--nproc_per_node 2"));
  CHECK_THAT(error({"--gpu=H200", "--sequence_length=4"}), Contains("--seq_length"));
  CHECK_THAT(error({"--gpu=H200", "--model_config=nowhere.json"}), Contains("nowhere.json"));
}
