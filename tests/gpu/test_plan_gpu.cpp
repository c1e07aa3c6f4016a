// What plans of time are made of, on a GPU.
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "app/plan/calibrate.hpp"
#include "app/plan/calibration.hpp"
#include "app/plan/unit_times.hpp"
#include "parallel/comm/gpu_address.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/model/recorded_operations.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero::plan {

namespace fs = std::filesystem;

TEST_CASE("the lists of operations are what runs on a GPU") {
  if (!has_gpu()) return;
  for (const auto& config : {model::small_qwen3(), model::small_llama(), model::small_qwen2()}) {
    for (const bool accumulates : {false, true}) {
      INFO(config.model_type << (accumulates ? ", accumulating" : ""));
      for (const auto& [type, gradient_type] : std::vector<std::pair<at::ScalarType, at::ScalarType>>{
               {at::kBFloat16, at::kBFloat16}, {at::kBFloat16, at::kFloat}}) {
        const model::MicroBatchShape shape{
            .sequences = 2, .length = 13, .type = type, .gradient_type = gradient_type, .accumulates = accumulates};
        CHECK(model::unlisted_operations(config, at::kCUDA, shape) == std::vector<std::string>());
      }
    }
  }
}

TEST_CASE("the lists of operations are what runs in FP8 on a GPU") {
  if (!has_gpu()) return;
  constexpr int kFp8 = 89, kRowwise = 90;
  const int capability = parallel::gpu_properties(0).capability;
  if (capability < kFp8) return;
  model::Fp8Options rowwise;
  rowwise.recipe.scaling = model::fp8::Scaling::kRowwise;
  for (const auto& config : {model::small_qwen3(), model::small_llama(), model::small_qwen2()}) {
    const model::MicroBatchShape shape{.sequences = 2, .length = 16};
    CHECK(model::unlisted_operations(config, at::kCUDA, shape, model::Fp8Options{}) == std::vector<std::string>());
    if (capability < kRowwise) continue;
    CHECK(model::unlisted_operations(config, at::kCUDA, shape, rowwise) == std::vector<std::string>());
  }
}

TEST_CASE("a GPU is calibrated, and its units have times from what was measured") {
  if (!has_gpu()) return;
  const fs::path folder = fs::temp_directory_path() / ("mpzero_calibrate_gpu_" + std::to_string(getpid()));
  CalibrateOptions options;
  options.device = "cuda";
  options.seconds = 600;
  options.models = {model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/qwen3_tiny.json")};
  options.micro_batches = {{1, 512}, {8, 2048}};
  options.parameters = 1'000'000;
  options.copy_bytes = 1 << 24;
  const CalibrationData data = calibrate(folder / "gpu.json", options);
  CHECK(data.gpu);
  CHECK(data.device.find("NVIDIA") != std::string::npos);
  // Between a slow link and any that there is.
  for (const double rate : {data.copies.to_device, data.copies.from_device, data.copies.both_ways}) {
    CHECK(rate > 1e8);
    CHECK(rate < 1e12);
  }
  CHECK(data.copies.on_device > 1e10);
  CHECK(data.launch_seconds > 1e-7);
  CHECK(data.launch_seconds < 1e-3);
  const Calibration calibration = Calibration::from_file(folder / "gpu.json");
  for (const at::ScalarType gradient_type : {at::kBFloat16, at::kFloat}) {
    const UnitTimes times = unit_times(calibration, options.models.front(),
                                       {.sequences = 8, .length = 2048, .gradient_type = gradient_type});
    CHECK(times.layer_forward.extrapolated == 0);
    CHECK(times.backward(model::Recompute::kNone).extrapolated == 0);
    CHECK(times.backward(model::Recompute::kSelective).extrapolated == 0);
    CHECK(times.backward(model::Recompute::kFull).on_device() > times.backward(model::Recompute::kNone).on_device());
  }
  const bool has_fp8 = parallel::gpu_properties(0).capability >= 89;
  CHECK(calibration.has_fp8() == has_fp8);
  if (has_fp8) {
    model::Fp8Layer fp8{.recipe = {}, .weights = model::Fp8Layer::Weights::kFirstUse};
    fp8.products.fill(true);
    const UnitTimes times =
        unit_times(calibration, options.models.front(), {.sequences = 8, .length = 2048, .fp8 = fp8});
    CHECK(times.layer_forward.extrapolated == 0);
    CHECK(times.backward(model::Recompute::kNone).extrapolated == 0);
  }
  fs::remove_all(folder);
}

}  // namespace mpzero::plan
