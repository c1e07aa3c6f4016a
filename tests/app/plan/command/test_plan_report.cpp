#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "app/plan/command/plan_report.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero::plan;

// Golden: tests/app/plan/command/plan_of_llama.txt, which `mpzero plan` printed for these flags.
TEST_CASE("the report of a run matches the golden file") {
  std::ifstream file(MPZERO_SOURCE_DIR "/tests/app/plan/command/plan_of_llama.txt");
  std::stringstream golden;
  golden << file.rdbuf();
  CHECK(output_of({"--model_config=" + kModels + "llama_3_8b.json", "--instance=p5e.48xlarge", "--nodes=2",
                   "--deepspeed_config=" MPZERO_SOURCE_DIR "/configs/ds_config_llama3_8b_zero3_offload.json",
                   "--seq_length=4096", "--tokens=15e9", "--price=40", "--disk_rate=2.5"})
            .text == golden.str());
}

TEST_CASE("two step times are printed only if they differ by more than 0.5%") {
  std::vector<std::string> flags = {"--model_config=" + kModels + "qwen3_0_6b.json",
                                    "--gpu=H200",
                                    "--seq_length=8192",
                                    "--deepspeed_config=" MPZERO_SOURCE_DIR
                                    "/configs/ds_config_llama3_8b_zero3_offload.json",
                                    "--deepspeed_config_yields=true",
                                    "--train_batch_size=2"};
  CHECK_THAT(output_of(flags).text, Catch::Contains("if gradients are clipped"));
  flags.back() = "--train_batch_size=512";
  const nlohmann::json step = json_of(flags)["step"];
  CHECK(step["clipped_seconds"] > step["seconds"]);
  CHECK_THAT(output_of(flags).text, !Catch::Contains("if gradients are clipped"));
}

TEST_CASE("a length in epochs is unknown without tokens") {
  std::vector<std::string> flags = {"--model_config=" + kModels + "qwen3_0_6b.json", "--instance=p5.48xlarge",
                                    "--seq_length=512", "--price=55", "--epochs=3"};
  CHECK_THAT(output_of(flags).text, Catch::Contains("Run length unknown") && Catch::Contains("pass --tokens"));
  CHECK(json_of(flags)["length"].is_null());
  flags.emplace_back("--tokens=1e9");
  CHECK(json_of(flags)["length"]["hours"].get<double>() > 0);
}

TEST_CASE("a short run is reported in minutes") {
  const auto length_of = [](const char* steps) {
    const std::vector<std::string> flags = {"--model_config=" + kModels + "qwen3_0_6b.json", "--instance=p5.48xlarge",
                                            "--seq_length=512", "--price=55", steps};
    const double hours = json_of(flags)["length"]["hours"].get<double>();
    return std::pair(output_of(flags).text, hours);
  };
  const auto [text, hours] = length_of("--max_steps=100");
  REQUIRE(hours < 0.1);
  CHECK_THAT(text, Catch::Contains(fmt::format(": {:.3g} minutes, {:.3f} GPU hours", 60 * hours, 8 * hours)));
  const auto [long_text, long_hours] = length_of("--max_steps=1000000");
  REQUIRE(long_hours > 1);
  CHECK_THAT(long_text, Catch::Contains(fmt::format(": {:.1f} hours, {:.1f} GPU hours", long_hours, 8 * long_hours)));
}

TEST_CASE("a plan that depends on the host's speed reports this and has a larger error") {
  std::vector<std::string> flags = {"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H200", "--seq_length=8192"};
  CHECK_THAT(output_of(flags).text, !Catch::Contains("host-bound"));
  const double error = json_of(flags)["calibration"]["relative_error"].get<double>();
  flags.back() = "--seq_length=64";
  const nlohmann::json calibration = json_of(flags)["calibration"];
  CHECK_THAT(output_of(flags).text, Catch::Contains("partly host-bound") && Catch::Contains("--calibrate"));
  const double share = calibration["host_bound_share"].get<double>();
  CHECK(share > 0.1);
  CHECK(share <= 0.5);
  CHECK(calibration["relative_error"].get<double>() > error + 0.4 * share);
}
