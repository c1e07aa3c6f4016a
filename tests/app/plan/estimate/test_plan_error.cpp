#include "app/plan/estimate/plan_error.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;

TEST_CASE("each part of a step contributes its own error, weighted by exposed time") {
  const StepSplit split{.data = 0,
                        .forward = 0.1,
                        .backward = 0.2,
                        .optimizer = 0.3,
                        .exposed_parameters = 0.3,
                        .exposed_gradients = 0.1};
  CHECK(error_of_step(split, {.kernels = 0.1}) == Approx(0.1));
  CHECK(error_of_step(split, {.kernels = 0.1, .communication = 0.5}) == Approx(0.6 * 0.1 + 0.4 * 0.5));
  CHECK(error_of_step(split, {.kernels = 0.1, .host_optimizer = 0.5}) == Approx(0.7 * 0.1 + 0.3 * 0.5));
  CHECK(error_of_step(split, {.kernels = 0.3, .communication = 0.2}) == Approx(0.3));  // never below the calibration's
  CHECK(error_of_step({}, {.kernels = 0.1, .communication = 0.5}) == Approx(0.1));
  // What the host holds up is part of computing and reading data, 0.3 of this step.
  CHECK(error_of_step(split, {.kernels = 0.1, .host_bound = 0.4}) == Approx(0.1 + 0.3 * 0.4));
}

TEST_CASE("kernels at sizes far from any measured size have a larger error") {
  CHECK(error_of_kernels(0.1, 0) == Approx(0.1));
  CHECK(error_of_kernels(0.1, 0.5) == Approx(0.15));
  CHECK(error_of_kernels(0.1, 1) == Approx(0.2));
  CHECK(error_of_kernels(0.3, 1) == Approx(0.3));
  // One product, one shape of attention and one size of a kernel.
  CalibrationData data = read_calibration(MPZERO_SOURCE_DIR "/tests/app/plan/roofline_calibration.json");
  data.matmuls.resize(1);
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("mpzero_one_product_" + std::to_string(getpid()) + ".json");
  write_calibration(file, data);
  const nlohmann::json plan =
      nlohmann::json::parse(plan_output({"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H200", "--json",
                                         "--calibration=" + file.string()})
                                .text);
  std::filesystem::remove(file);
  const double share = plan["calibration"]["extrapolated_share"];
  CHECK(share > 0.4);
  CHECK(plan["calibration"]["relative_error"].get<double>() == Approx(0.1 + 0.1 * share).margin(1e-3));
}

TEST_CASE("a step that waits for an estimated network has a larger error than its kernels") {
  const std::vector<std::string> flags = {"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H200"};
  const auto error = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), more.begin(), more.end());
    return json_of(all)["calibration"]["relative_error"].get<double>();
  };
  CHECK(error({}) == Approx(0.1).margin(1e-3));  // a little is bound by the host
  CHECK(error({"--nodes=4", "--network=socket"}) > 0.2);
  CHECK(error({"--nodes=4", "--network=socket", "--network_rate=5"}) == Approx(0.1).margin(1e-3));
}

TEST_CASE("with a shipped calibration, the host differs and the error is larger") {
  // Small enough for a host that is half as fast to hold it up: bench/PLAN.md has two, and runs on both.
  const std::vector<std::string> small = {"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H100",
                                          "--seq_length=512"};
  const auto planned = [&](std::vector<std::string> more) {
    more.insert(more.begin(), small.begin(), small.end());
    const std::string text = plan_output(more).text;
    more.emplace_back("--json");
    return std::pair(text, nlohmann::json::parse(plan_output(more).text));
  };
  const std::string own = "--calibration=" MPZERO_SOURCE_DIR "/configs/calibrations/h100.json";
  const auto [text, shipped] = planned({});
  const auto [own_text, measured] = planned({own});
  CHECK(shipped["step"] == measured["step"]);
  // The same run took 23.1 ms on the slower host (bench/plan_measured.json).
  const double error = shipped["calibration"]["relative_error"], seconds = shipped["step"]["seconds"];
  CHECK(seconds * (1 + error) > 0.0231);
  CHECK(shipped["calibration"]["slow_host_share"].get<double>() > 0.4);
  CHECK(measured["calibration"]["slow_host_share"] == 0);
  CHECK(measured["calibration"]["relative_error"].get<double>() < 0.2);
  CHECK_THAT(text, Catch::Contains("a host CPU half as fast would add"));
  CHECK_THAT(own_text, !Catch::Contains("half as fast"));

  const std::string offload = "--deepspeed_config=" MPZERO_SOURCE_DIR "/configs/ds_config.json";
  const auto [host_text, host] = planned({offload});
  const auto [own_host_text, own_host] = planned({offload, own});
  CHECK_THAT(host_text, Catch::Contains("estimated from the calibrated host with 32 threads"));
  CHECK_THAT(own_host_text, !Catch::Contains("estimated"));
  CHECK(host["calibration"]["relative_error"].get<double>() > 0.4);
  CHECK(own_host["calibration"]["relative_error"].get<double>() < 0.2);
}
