#include "app/plan/command/plan_error.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;

TEST_CASE("each part of a step has its own error, by its exposed share") {
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
}

TEST_CASE("a step that waits for a network by an estimate is less certain than its kernels") {
  const std::vector<std::string> flags = {"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H200"};
  const auto error = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), more.begin(), more.end());
    return json_of(all)["calibration"]["relative_error"].get<double>();
  };
  CHECK(error({}) == Approx(0.1));
  CHECK(error({"--nodes=4", "--network=socket"}) > 0.2);
  CHECK(error({"--nodes=4", "--network=socket", "--network_rate=5"}) == Approx(0.1));
}
