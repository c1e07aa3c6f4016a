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

// Thrown if a calibration lacks times that a plan requires. The run itself may still be valid.
class MissingTimes final : public UserError {
 public:
  using UserError::UserError;
};

// Estimates the times of operations on a device from measurements on that device.
class Calibration {
 public:
  // `name`: the file name, used in error messages.
  Calibration(CalibrationData data, std::string name);
  // Throws UserError if the file is unreadable or not a calibration. `shipped`: true if the file is in
  // configs/calibrations.
  static Calibration from_file(const std::filesystem::path& path, bool shipped = false);

  const CalibrationData& data() const { return data_; }
  const std::string& name() const { return name_; }
  // Returns true if the file is shipped with mpzero, in which case the planned host differs from the calibrated host.
  bool shipped() const { return shipped_; }
  // Returns the expected relative error of a step's time, e.g. 0.1 for +/- 10%.
  double error() const { return data_.error; }

  // Returns true if FP8 matmuls were measured. Otherwise, FP8 times on a GPU are estimated from bf16 times.
  bool has_fp8() const { return matmuls_.contains(kFp8); }

  // Returns true if fp32 matmuls and attention were measured. Otherwise, fp32 times on a GPU are estimated from bf16
  // times if fp32_of_bf16() is known.
  bool has_fp32() const;
  // Returns the slowdown of fp32 relative to bf16 from the GPU's data sheet, or std::nullopt if unknown.
  std::optional<double> fp32_of_bf16() const;

  // Returns the time of one call of `operation`. Throws MissingTimes if the dtype of a matmul or attention was not
  // measured and cannot be estimated. The time of an unmeasured kernel is estimated as the time to copy its bytes.
  Estimate seconds(const model::Operation& operation) const;
  // Returns the time of a kernel, given its name in the file. `kin`, `copy_share`: see Operation.
  Estimate kernel_seconds(const std::string& kernel, at::ScalarType type, double bytes, const std::string& kin = "",
                          double copy_share = 1) const;
  // Returns the time of a collective on tensors in host memory between the calibrated ranks, or std::nullopt if not
  // measured. `name`: name of the collective in the file.
  std::optional<double> collective_seconds(const std::string& name, at::ScalarType type, double bytes) const;
  // Returns the ratio of a layer's time to the sum of the times of its operations, measured individually. The ratio
  // differs from 1 because a busy GPU lowers its clocks at the power limit, and small tensors stay in the cache. Fits
  // the measured ratios linearly against the log of `layer_seconds` (the sum, forward and backward), and clamps the
  // result to the measured range.
  double step_factor(double layer_seconds) const;
  // Throws MissingTimes for the times of `what`.
  [[noreturn]] void lacks(const std::string& what) const;

 private:
  // Key of all FP8 matmuls in `matmuls_`.
  static constexpr at::ScalarType kFp8 = at::kFloat8_e4m3fn;
  Estimate fp8_seconds(const model::Operation& operation) const;
  // Estimates the time of a matmul or attention whose dtype was not measured, based on bf16 times, or throws
  // MissingTimes.
  Estimate without_times(const model::Operation& operation, const char* what) const;

  CalibrationData data_;
  std::string name_;
  bool shipped_ = false;
  std::map<at::ScalarType, TimeTable> matmuls_;
  std::map<std::pair<std::string, at::ScalarType>, TimeTable> attention_, kernels_, collectives_;
};

}  // namespace mpzero::plan
