#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "app/plan/calibration.hpp"
#include "app/plan/calibration_file.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"

namespace mpzero::plan {
namespace {

using model::MatmulShape;
using model::Operation;

CalibrationData roofline() { return read_calibration(MPZERO_SOURCE_DIR "/tests/app/plan/roofline_calibration.json"); }

Operation product(const MatmulShape& shape, bool adds = false) { return on_matmul(shape, adds); }

}  // namespace

TEST_CASE("the estimate at a measured size is the measured time") {
  const CalibrationData data = roofline();
  const Calibration calibration(data, "roofline");
  for (const CalibrationData::Matmul& m : data.matmuls) {
    const Estimate estimate = calibration.seconds(product(m.shape, m.adds));
    CHECK(estimate.seconds == Approx(m.seconds));
    CHECK_FALSE(estimate.extrapolated);
  }
  for (const CalibrationData::Attention& a : data.attention) {
    CHECK(calibration.seconds(on_attention(a.shape, a.type, false)).seconds == Approx(a.forward_seconds));
    CHECK(calibration.seconds(on_attention(a.shape, a.type, true)).seconds == Approx(a.backward_seconds));
  }
}

TEST_CASE("matmuls are estimated from other sizes within 20%, and half of them within 5%") {
  // Each of the measured products from those of other shapes.
  const CalibrationData data = roofline();
  std::vector<double> errors;
  for (const CalibrationData::Matmul& left_out : data.matmuls) {
    CalibrationData others = data;
    const auto same = [&](const CalibrationData::Matmul& m) {
      return m.shape.rows == left_out.shape.rows && m.shape.columns == left_out.shape.columns &&
             m.shape.inner == left_out.shape.inner;
    };
    others.matmuls.erase(std::remove_if(others.matmuls.begin(), others.matmuls.end(), same), others.matmuls.end());
    const Calibration calibration(others, "others");
    errors.push_back(
        std::abs(calibration.seconds(product(left_out.shape, left_out.adds)).seconds / left_out.seconds - 1));
  }
  std::sort(errors.begin(), errors.end());
  CHECK(errors[errors.size() / 2] < 0.05);
  CHECK(errors[errors.size() * 9 / 10] < 0.15);
  CHECK(errors.back() < 0.25);
}

TEST_CASE("shapes far from any measured shape are extrapolated") {
  const Calibration calibration(roofline(), "roofline");
  const Estimate small = calibration.seconds(product({.rows = 64, .columns = 64, .inner = 64, .b_transposed = true}));
  CHECK(small.extrapolated);
  // Some microseconds, as any kernel.
  CHECK(small.seconds > 1e-6);
  CHECK(small.seconds < 2e-5);
  // Attention of 32,768 tokens: the rate of 8,192, 16 times the work for as many heads.
  const auto attention = [&](int64_t length) {
    return calibration.seconds(model::on_attention({1, length, 32, 8, 128}, at::kBFloat16, false));
  };
  CHECK(attention(65536).extrapolated);
  CHECK(attention(32768).seconds == Approx(16 * attention(8192).seconds).epsilon(0.25));
}

TEST_CASE("kernels that were not measured are estimated") {
  CalibrationData data;
  data.copies.on_device = 1e12;
  data.kernels["swiglu_backward"] = {{at::kBFloat16, 1e6, 2e-6}};
  data.kernels["rms_norm_forward"] = {{at::kBFloat16, 1e6, 2e-6}, {at::kFloat, 1e6, 4e-6}};
  const Calibration calibration(data, "few");
  CHECK(calibration.kernel_seconds("rms_norm_forward", at::kBFloat16, 1e6).seconds == Approx(2e-6));
  CHECK(calibration.kernel_seconds("rms_norm_forward", at::kFloat, 1e6).seconds == Approx(4e-6));
  CHECK_FALSE(calibration.kernel_seconds("rms_norm_forward", at::kFloat, 1e6).extrapolated);
  // Its kin; another type; a copy, or a fraction of its rate.
  CHECK(calibration.kernel_seconds("a kernel", at::kBFloat16, 1e6, "swiglu_backward").seconds == Approx(2e-6));
  CHECK(calibration.kernel_seconds("swiglu_backward", at::kFloat, 1e6).seconds == Approx(2e-6));
  CHECK(calibration.kernel_seconds("swiglu_backward", at::kFloat, 1e6).extrapolated);
  CHECK(calibration.kernel_seconds("cross_entropy", at::kBFloat16, 1e6).seconds == Approx(1e-6));
  CHECK(calibration.kernel_seconds("cross_entropy", at::kBFloat16, 1e6).extrapolated);
  CHECK(calibration.kernel_seconds("cross_entropy", at::kBFloat16, 1e6, "", 0.5).seconds == Approx(2e-6));
  CHECK(error_from([] { Calibration(CalibrationData{}, "empty.json").kernel_seconds("adamw", at::kFloat, 1); }) ==
        "empty.json: the calibration has no times for adamw; calibrate the target machine with `mpzero plan "
        "--calibrate FILE`");
}

TEST_CASE("the step factor is a linear fit of the measured factors") {
  CalibrationData data;
  CHECK(Calibration(data, "").step_factor(1e-3) == 1);
  data.full_step = {{1e-3, 1.0}, {4e-3, 1.1}};
  const Calibration line(data, "");
  CHECK(line.step_factor(1e-3) == Approx(1.0));
  CHECK(line.step_factor(2e-3) == Approx(1.05));
  CHECK(line.step_factor(1e-5) == Approx(1.0));  // no further than measured
  CHECK(line.step_factor(1) == Approx(1.1));
}

TEST_CASE("a single outlier makes no step faster than any measured step") {
  CalibrationData data;
  // The line through them is -5.5 at its beginning: 14 in the middle, 19.5 a doubling.
  data.full_step = {{1e-3, 1.0}, {2e-3, 1.0}, {4e-3, 40.0}};
  const Calibration bent(data, "");
  CHECK(bent.step_factor(1e-3) == Approx(1.0));
  CHECK(bent.step_factor(2e-3) == Approx(14.0));
  CHECK(bent.step_factor(4e-3) == Approx(33.5));
}

TEST_CASE("collectives between a host's ranks are estimated from their bytes") {
  CalibrationData data;
  CHECK_FALSE(Calibration(data, "").collective_seconds("all-gather", at::kFloat, 1000));
  data.collectives = {{"all-gather", at::kFloat, 1000, 1e-3},
                      {"all-gather", at::kFloat, 4000, 4e-3},
                      {"all-reduce", at::kBFloat16, 1000, 5e-3}};
  const Calibration calibration(data, "");
  CHECK(*calibration.collective_seconds("all-gather", at::kFloat, 1000) == Approx(1e-3));
  CHECK(*calibration.collective_seconds("all-gather", at::kFloat, 2000) == Approx(2e-3));
  // Of another type, where only that was measured.
  CHECK(*calibration.collective_seconds("all-reduce", at::kDouble, 1000) == Approx(5e-3));
  CHECK_FALSE(calibration.collective_seconds("reduce-scatter", at::kFloat, 1000));
}

}  // namespace mpzero::plan
