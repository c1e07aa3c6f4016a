#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "app/plan/calibration_data.hpp"
#include "app/plan/time_table.hpp"
#include "base/error.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::plan {

// The calibration lacks times that the plan needs; the run itself may be possible.
class MissingTimes final : public UserError {
 public:
  using UserError::UserError;
};

// Estimates the times of operations on a device from measurements on that device.
class Calibration {
 public:
  // `name`: the file, for messages.
  Calibration(CalibrationData data, std::string name);
  // Throws UserError with the file if it cannot be read or is not a calibration. `shipped`: from configs/calibrations.
  static Calibration from_file(const std::filesystem::path& path, bool shipped = false);

  const CalibrationData& data() const { return data_; }
  const std::string& name() const { return name_; }
  // Whether the file comes with mpzero. The planned host then differs from the calibrated one.
  bool shipped() const { return shipped_; }
  // Expected relative error of a step's time: half the width of the interval.
  double error() const { return data_.error; }

  // Whether FP8 matmuls were measured. If not, they are estimated from bf16.
  bool has_fp8() const { return matmuls_.contains(kFp8); }

  // Whether fp32 matmuls and attention were measured. If not, a GPU's are estimated from bf16 if fp32_of_bf16() is
  // known.
  bool has_fp32() const { return matmuls_.contains(at::kFloat) && attention_forward_.contains(at::kFloat); }
  // Slowdown of fp32 relative to bf16: the ratio of the GPU's rates in data sheets. std::nullopt: unknown.
  std::optional<double> fp32_of_bf16() const;

  // Time of one call. Matmuls and attention throw MissingTimes if their dtype was not measured and cannot be estimated;
  // a kernel that was not measured counts as a copy of its bytes.
  Estimate seconds(const model::Operation& operation) const;
  // A kernel by its name in the file.
  Estimate kernel_seconds(const std::string& kernel, at::ScalarType type, double bytes) const;
  // Time of a collective on tensors in host memory between the calibrated ranks. std::nullopt: not measured. `name`: as
  // in the file.
  std::optional<double> collective_seconds(const std::string& name, at::ScalarType type, double bytes) const;
  // Time of operations within a step over their time measured one by one: a busy GPU lowers its clocks at the power
  // limit, and small tensors are still in the cache. `layer_seconds`: sum of a layer's operations measured one by one,
  // forward and backward. A linear fit of the measured factors over the log of the time, clamped to the measured range.
  double step_factor(double layer_seconds) const;

 private:
  // Key of the table of all FP8 matmuls.
  static constexpr at::ScalarType kFp8 = at::kFloat8_e4m3fn;
  Estimate fp8_seconds(const model::Operation& operation) const;
  [[noreturn]] void lacks(const std::string& what) const;

  CalibrationData data_;
  std::string name_;
  bool shipped_ = false;
  std::map<at::ScalarType, TimeTable> matmuls_, attention_forward_, attention_backward_;
  std::map<std::pair<std::string, at::ScalarType>, TimeTable> kernels_, collectives_;
};

}  // namespace mpzero::plan
