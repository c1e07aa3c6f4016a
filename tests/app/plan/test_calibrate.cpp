// The calibration of this machine's CPU from end to end, with a tiny model.
#include <c10/cuda/CUDAFunctions.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

#include "app/plan/calibrate.hpp"
#include "app/plan/calibration.hpp"
#include "app/plan/calibration_file.hpp"
#include "app/plan/unit_times.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero::plan {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path = fs::temp_directory_path() / ("mpzero_calibrate_" + std::to_string(getpid()));
  ~Folder() { fs::remove_all(path); }
};

CalibrateOptions tiny() {
  CalibrateOptions options;
  options.device = "cpu";
  options.seconds = 600;
  options.models = {model::small_qwen3(), model::small_qwen2()};
  options.micro_batches = {{1, 16}, {4, 32}};
  options.parameters = 100'000;
  options.copy_bytes = 1 << 20;
  return options;
}

}  // namespace

TEST_CASE("layers whose times deviate from their operations indicate a busy machine") {
  const auto spread = [](const std::vector<double>& factors) {
    std::vector<CalibrationData::FullStep> steps;
    for (const double factor : factors) steps.push_back({.layer_seconds = 1e-3, .factor = factor});
    return spread_of_steps(steps);
  };
  CHECK(spread({}) == 0);
  // One thread on a core of its own.
  CHECK(spread({1.123, 1.158, 1.092, 1.037, 1.11, 1.139, 1.073}) < 0.05);
  CHECK(spread({0.8, 1.0, 1.2, 1.0, 0.9}) == Approx(0.1));
  // Two threads beside compilers that took the same two cores.
  CHECK(spread({0.507, 0.042, 0.44, 0.365, 0.053, 0.004, 0.771, 0.017}) == 1);
  CHECK(spread({19.265, 12.904}) == 1);
}

TEST_CASE("a CPU calibration provides times for all units") {
  const Folder folder;
  const fs::path file = folder.path / "new/cpu.json";
  const CalibrationData data = calibrate(file, tiny());
  CHECK_FALSE(data.gpu);
  CHECK_FALSE(data.device.empty());
  CHECK(data.date.size() == 10);
  CHECK(data.host.adamw_parameters_per_second > 0);
  CHECK(data.host.threads > 0);
  CHECK(data.copies.on_device > 0);
  CHECK(data.launch_seconds == 0);
  CHECK(data.error >= 0.1);
  CHECK(data.error <= 0.9);
  CHECK_FALSE(data.full_step.empty());
  CHECK(to_json(read_calibration(file)) == to_json(data));

  const Calibration calibration = Calibration::from_file(file);
  for (const model::ModelConfig& config : {model::small_qwen3(), model::small_qwen2()}) {
    for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
      const UnitTimes times =
          unit_times(calibration, config, {.sequences = 4, .length = 32, .type = type, .gradient_type = type});
      CHECK(times.layer_forward[model::Recompute::kNone].extrapolated == 0);
      CHECK(times.layer_backward[model::Recompute::kNone].extrapolated == 0);
      CHECK(times.layer_backward[model::Recompute::kSelective].extrapolated == 0);
      CHECK(times.head.extrapolated == 0);
      CHECK(times.embedding_backward.extrapolated == 0);
      CHECK(times.layer_forward[model::Recompute::kNone].total() > 0);
    }
  }
}

TEST_CASE("a calibration skips T5 models in configs/models") {
  const Folder folder;
  const fs::path models = folder.path / "configs/models", before = fs::current_path();
  const fs::path source = MPZERO_SOURCE_DIR;
  fs::create_directories(models);
  fs::copy(source / "assets/tiny_t5/config.json", models / "tiny_t5.json");
  fs::copy(source / "configs/models/qwen3_tiny.json", models);
  CalibrateOptions options = tiny();
  options.models = {};
  options.micro_batches = {{1, 16}};
  options.seconds = 1e-9;
  fs::current_path(folder.path);
  const CalibrationData data = calibrate("cpu.json", options);
  fs::current_path(before);
  // The preset, and a model between presets.
  CHECK(data.source.find("2 of 4 micro-batches of 2 models") != std::string::npos);
}

TEST_CASE("a repeated calibration keeps its device names, but not those of a different device") {
  const Folder folder;
  const fs::path file = folder.path / "cpu.json";
  CalibrateOptions options = tiny();
  options.models = {model::small_qwen3()};
  options.micro_batches = {{1, 16}};
  CalibrationData data = calibrate(file, options);
  CHECK(data.names == std::vector<std::string>{data.device});
  data.names.emplace_back("another name");
  write_calibration(file, data);
  CHECK(calibrate(file, options).names == data.names);
  data.device = "another device";
  write_calibration(file, data);
  CHECK(calibrate(file, options).names.size() == 1);
}

TEST_CASE("a calibration that runs out of time covers the first micro-batch of each dtype and reports this") {
  const Folder folder;
  CalibrateOptions options = tiny();
  options.seconds = 1e-9;
  options.micro_batches = {{1, 16}, {1, 64}};
  const CalibrationData data = calibrate(folder.path / "cpu.json", options);
  CHECK(data.source.find("2 of 8 micro-batches") != std::string::npos);
  std::set<at::ScalarType> types;
  for (const CalibrationData::Attention& attention : data.attention) {
    types.insert(attention.type);
    CHECK(attention.backward_seconds > 0);
  }
  CHECK(types == std::set<at::ScalarType>{at::kBFloat16, at::kFloat});
  // Which would show what else the machine did.
  CHECK(data.full_step.empty());
  CHECK(data.error >= 0.5);
}

TEST_CASE("a calibration that cannot complete is refused before it starts") {
  const Folder folder;
  fs::create_directories(folder.path / "a_file");
  CalibrateOptions options = tiny();
  options.models = {};
  CHECK(error_from([&] { calibrate("/proc/cpu.json", options); }).find("/proc") != std::string::npos);
  if (c10::cuda::device_count() > 0) return;
  options.device = "cuda";
  CHECK(error_from([&] { calibrate(folder.path / "gpu.json", options); }) ==
        "--calibrate with --device cuda: CUDA detects no GPU; use a node with a GPU, or --device cpu");
}

}  // namespace mpzero::plan
