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

// A calibration without the times that a plan needs; the run itself may be possible.
class MissingTimes final : public UserError {
 public:
  using UserError::UserError;
};

// How long operations take on a device, from what was measured there.
class Calibration {
 public:
  // `name`: the file, for messages.
  Calibration(CalibrationData data, std::string name);
  // Throws UserError naming the file if it cannot be read or is no calibration. `shipped`: of configs/calibrations.
  static Calibration from_file(const std::filesystem::path& path, bool shipped = false);

  const CalibrationData& data() const { return data_; }
  const std::string& name() const { return name_; }
  // Whether it comes with mpzero: the host that a plan is of is another one then.
  bool shipped() const { return shipped_; }
  // The relative error to expect of a step's time: half of an interval.
  double error() const { return data_.error; }

  // Whether products in FP8 were measured. If not, they are estimated from those in bf16.
  bool has_fp8() const { return matmuls_.contains(kFp8); }

  // Whether products and attention in fp32 were measured. If not, those of a GPU are estimated from those in bf16,
  // where fp32_of_bf16() is known.
  bool has_fp32() const { return matmuls_.contains(at::kFloat) && attention_forward_.contains(at::kFloat); }
  // How many times as long they take: the GPU's rate in bf16 over that in fp32, by data sheets.
  std::optional<double> fp32_of_bf16() const;

  // One call. Products and attention throw MissingTimes for a type of operands that was neither measured nor can be
  // estimated; a kernel that was not measured counts as a copy of its bytes.
  Estimate seconds(const model::Operation& operation) const;
  // A kernel by its name in the file.
  Estimate kernel_seconds(const std::string& kernel, at::ScalarType type, double bytes) const;
  // Of tensors in host memory, between the ranks that measured. std::nullopt: not measured. `name`: as in the file.
  std::optional<double> collective_seconds(const std::string& name, at::ScalarType type, double bytes) const;
  // What a step's operations take in a step, divided by what they take one by one: while the GPU is busy its clocks
  // fall under the power limit, and small tensors are still in the cache. `layer_seconds`: of a layer's operations one
  // by one, forward and backward. A line through the measured factors over the log of the time; no further than them.
  double step_factor(double layer_seconds) const;

 private:
  // The table of all products in FP8.
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
