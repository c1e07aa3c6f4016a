#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/plan/calibration_file.hpp"
#include "app/plan/command/plan_command.hpp"
#include "tests/app/plan/hand_made.hpp"
#include "tests/io/temporary_folder.hpp"

namespace mpzero::plan {

// A calibration that does not change when the calibrations in configs/calibrations are measured again.
inline const std::string kCalibration = "--calibration=" MPZERO_SOURCE_DIR "/tests/app/plan/roofline_calibration.json";
inline const std::string kModels = MPZERO_SOURCE_DIR "/configs/models/";

// Returns the output with this calibration.
inline PlanOutput output_of(std::vector<std::string> flags) {
  flags.push_back(kCalibration);
  return plan_output(flags);
}

inline nlohmann::json json_of(std::vector<std::string> flags) {
  flags.emplace_back("--json");
  return nlohmann::json::parse(output_of(std::move(flags)).text);
}

// A ds_config.json or another file, which exists for the lifetime of the object.
class TextFile {
 public:
  explicit TextFile(const std::string& text = "") { write(text); }
  void write(const std::string& text) const { std::ofstream(path()) << text; }
  std::string path() const { return folder_ / "file.json"; }
  std::string ds_config() const { return "--deepspeed_config=" + path(); }

 private:
  io::testing::TemporaryFolder folder_;
};

// The same calibration for a different GPU, in a file that exists for the lifetime of the object.
class RenamedCalibration {
 public:
  explicit RenamedCalibration(const std::string& device, double error = 0.1) {
    CalibrationData data = read_calibration(MPZERO_SOURCE_DIR "/tests/app/plan/roofline_calibration.json");
    data.device = device;
    data.names = {device};
    data.error = error;
    write_calibration(path_, data);
  }
  ~RenamedCalibration() { std::filesystem::remove(path_); }
  RenamedCalibration(const RenamedCalibration&) = delete;
  RenamedCalibration& operator=(const RenamedCalibration&) = delete;
  std::string flag() const { return "--calibration=" + path_.string(); }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("mpzero_renamed_calibration_" + std::to_string(getpid()) + ".json");
};

// A calibration with round numbers, measured by two ranks with two threads each, in a file that exists for the lifetime
// of the object. One microsecond is the time of 1e6 FLOPs of a matmul, 1e5 FLOPs of attention, 1e4 bytes of a kernel,
// and 1e5 bytes of a collective.
class CpuCalibration {
 public:
  CpuCalibration() {
    CalibrationData data = hand_made("a CPU", /*gpu=*/false);
    for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
      const model::MatmulShape shape{.rows = 100, .columns = 100, .inner = 50, .type = type, .out_type = type};
      data.matmuls.push_back({.shape = shape, .adds = false, .seconds = 1e-6});
      data.attention.push_back({{1, 100, 1, 1, 5}, type, 1e-6, 2.5e-6});
      for (const char* name : {"all-gather", "reduce-scatter", "all-reduce"}) {
        data.collectives.push_back({name, type, 1e6, 1e-5});
      }
    }
    data.copies.on_device = 1e10;
    data.host = {.adamw_parameters_per_second = 1e9, .threads = 2, .ranks = 2, .memory_bytes_per_second = 1e10};
    write_calibration(path_, data);
  }
  ~CpuCalibration() { std::filesystem::remove(path_); }
  CpuCalibration(const CpuCalibration&) = delete;
  CpuCalibration& operator=(const CpuCalibration&) = delete;
  std::string path() const { return path_.string(); }
  std::string flag() const { return "--calibration=" + path(); }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("mpzero_cpu_calibration_" + std::to_string(getpid()) + ".json");
};

}  // namespace mpzero::plan
