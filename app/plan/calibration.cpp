#include "app/plan/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "app/gpu/gpu_models.hpp"
#include "app/plan/calibration_file.hpp"

namespace mpzero::plan {
namespace {

using model::Operation;
using Sample = TimeTable::Sample;

// Assumed time of FP8 matmuls relative to bf16 on a GPU with unknown rates. Measured on H100 and H200: 0.50 to 0.60
// (bench/RESULTS.md, "FP8").
constexpr double kFp8OfBf16 = 0.5;

double log_of(int64_t size) { return std::log2(static_cast<double>(std::max<int64_t>(1, size))); }

// Returns FLOPs, bytes and the number of launches (1).
std::vector<double> work_of(const Operation& operation) { return {operation.flops, operation.bytes, 1}; }

// A different layout or output dtype is as distant as a factor of 2.7 in one size, and an added matrix as distant as a
// factor of 2. In a test that estimated each matmul of six workloads on an H200 from other shapes, half of the errors
// were below 4%, 90% were below 12%, and all were below 20%.
std::vector<double> place_of(const model::MatmulShape& shape, bool adds) {
  const double wide = shape.out_type != shape.type ? std::numbers::sqrt2 : 0;
  const auto layout = [&](bool a, bool b) { return shape.a_transposed == a && shape.b_transposed == b ? 1.0 : 0.0; };
  return {log_of(shape.rows), log_of(shape.columns), log_of(shape.inner), layout(false, false), layout(false, true),
          layout(true, false), wide, adds ? 1.0 : 0.0,
          // A different scaling is as distant as a factor of 2. A different accumulation mode or format is less
          // distant.
          shape.fp8 && shape.fp8->rowwise ? 1.0 : 0.0, shape.fp8 && shape.fp8->fast_accumulation ? 0.5 : 0.0,
          shape.type == at::kFloat8_e5m2 ? 0.25 : 0.0};
}

// Additional heads first fill the GPU, then only add work. Keys shared by more heads are read less often.
std::vector<double> place_of(const model::AttentionShape& shape) {
  return {log_of(shape.length), 0.5 * log_of(shape.batch * shape.heads), log_of(shape.head_dim),
          0.25 * log_of(shape.heads / std::max<int64_t>(1, shape.key_value_heads))};
}

Sample kernel_sample(double bytes, double seconds) {
  return {.work = {bytes, 1}, .place = {std::log2(std::max(1.0, bytes))}, .seconds = seconds};
}

// Returns the same matmul or attention with bf16 operands and result.
Operation in_bf16(const Operation& operation) {
  if (operation.attention) {
    return on_attention(*operation.attention, at::kBFloat16, operation.name == model::kAttentionBackward);
  }
  model::MatmulShape shape = *operation.matmul;
  shape.type = shape.out_type = at::kBFloat16;
  return on_matmul(shape, operation.adds);
}

template <typename Key>
std::map<Key, TimeTable> tables_of(std::map<Key, std::vector<Sample>> samples) {
  std::map<Key, TimeTable> tables;
  for (auto& [key, own] : samples) tables.emplace(key, TimeTable(std::move(own)));
  return tables;
}

}  // namespace

Calibration::Calibration(CalibrationData data, std::string name) : data_(std::move(data)), name_(std::move(name)) {
  std::map<at::ScalarType, std::vector<Sample>> matmuls;
  std::map<std::pair<std::string, at::ScalarType>, std::vector<Sample>> attention, kernels, collectives;
  for (const CalibrationData::Matmul& m : data_.matmuls) {
    matmuls[m.shape.fp8 ? kFp8 : m.shape.type].push_back(
        {work_of(on_matmul(m.shape, m.adds)), place_of(m.shape, m.adds), m.seconds});
  }
  for (const CalibrationData::Attention& a : data_.attention) {
    for (const auto& [backward, seconds] : {std::pair(false, a.forward_seconds), {true, a.backward_seconds}}) {
      const Operation operation = on_attention(a.shape, a.type, backward);
      attention[{std::string(operation.name), a.type}].push_back({work_of(operation), place_of(a.shape), seconds});
    }
  }
  for (const auto& [kernel, times] : data_.kernels) {
    for (const auto& [type, bytes, seconds] : times) kernels[{kernel, type}].push_back(kernel_sample(bytes, seconds));
  }
  matmuls_ = tables_of(std::move(matmuls));
  attention_ = tables_of(std::move(attention));
  kernels_ = tables_of(std::move(kernels));
  for (const auto& [kind, type, bytes, seconds] : data_.collectives) {
    collectives[{kind, type}].push_back(kernel_sample(bytes, seconds));
  }
  collectives_ = tables_of(std::move(collectives));
}

Calibration Calibration::from_file(const std::filesystem::path& path, bool shipped) {
  Calibration calibration(read_calibration(path), path.string());
  calibration.shipped_ = shipped;
  return calibration;
}

void Calibration::lacks(const std::string& what) const {
  throw MissingTimes(fmt::format(
      "{}: the calibration has no times for {}; calibrate the target machine with `mpzero plan --calibrate FILE`",
      name_, what));
}

std::optional<double> Calibration::fp32_of_bf16() const {
  const std::optional<double> bf16 = dense_bf16_flops(data_.device), fp32 = fp32_flops(data_.device);
  if (!data_.gpu || !bf16 || !fp32) return std::nullopt;
  return *bf16 / *fp32;
}

bool Calibration::has_fp32() const {
  return matmuls_.contains(at::kFloat) && attention_.contains({model::kAttentionForward, at::kFloat});
}

Estimate Calibration::seconds(const Operation& operation) const {
  if (operation.matmul && operation.matmul->fp8) return fp8_seconds(operation);
  if (operation.matmul) {
    const auto found = matmuls_.find(operation.type);
    if (found == matmuls_.end()) return without_times(operation, "matmuls");
    return found->second.at(work_of(operation), place_of(*operation.matmul, operation.adds));
  }
  if (operation.attention) {
    const auto found = attention_.find({std::string(operation.name), operation.type});
    if (found == attention_.end()) return without_times(operation, "attention");
    return found->second.at(work_of(operation), place_of(*operation.attention));
  }
  Estimate estimate = kernel_seconds(std::string(operation.name), operation.type, operation.bytes,
                                     std::string(operation.kin), operation.copy_share);
  if (operation.products) {
    const Operation product = on_matmul(*operation.products, /*adds=*/false);
    estimate.seconds += operation.flops / product.flops * seconds(product).seconds;
  }
  return estimate;
}

Estimate Calibration::without_times(const Operation& operation, const char* what) const {
  const std::optional<double> slower = operation.type == at::kFloat ? fp32_of_bf16() : std::nullopt;
  const Operation narrow = in_bf16(operation);
  const bool known = operation.matmul ? matmuls_.contains(at::kBFloat16)
                                      : attention_.contains({std::string(operation.name), at::kBFloat16});
  if (!slower || !known) lacks(fmt::format("{} in {}", what, operation.type == at::kBFloat16 ? "bf16" : "fp32"));
  Estimate estimate = seconds(narrow);
  estimate.seconds *= *slower;
  return estimate;
}

Estimate Calibration::fp8_seconds(const Operation& operation) const {
  if (const auto found = matmuls_.find(kFp8); found != matmuls_.end()) {
    return found->second.at(work_of(operation), place_of(*operation.matmul, operation.adds));
  }
  // A CPU computes FP8 matmuls in fp32.
  if (!data_.gpu) lacks("matmuls in FP8");
  model::MatmulShape wider = *operation.matmul;
  wider.type = at::kBFloat16;
  wider.fp8.reset();
  Estimate estimate = seconds(on_matmul(wider, operation.adds));
  const std::optional<double> bf16 = dense_bf16_flops(data_.device), fp8 = dense_fp8_flops(data_.device);
  estimate.seconds *= bf16 && fp8 ? *bf16 / *fp8 : kFp8OfBf16;
  return estimate;
}

Estimate Calibration::kernel_seconds(const std::string& kernel, at::ScalarType type, double bytes,
                                     const std::string& kin, double copy_share) const {
  const Sample wanted = kernel_sample(bytes, 1);
  for (const std::string& name : {kernel, kin}) {
    for (const at::ScalarType other : {type, at::kBFloat16, at::kFloat}) {
      const auto found = kernels_.find({name, other});
      if (found == kernels_.end()) continue;
      Estimate estimate = found->second.at(wanted.work, wanted.place);
      estimate.extrapolated = estimate.extrapolated || other != type || name != kernel;
      return estimate;
    }
  }
  if (data_.copies.on_device <= 0) lacks(kernel);
  return {.seconds = bytes / (data_.copies.on_device * copy_share), .extrapolated = true};
}

std::optional<double> Calibration::collective_seconds(const std::string& name, at::ScalarType type,
                                                      double bytes) const {
  const Sample wanted = kernel_sample(bytes, 1);
  for (const at::ScalarType other : {type, at::kFloat, at::kBFloat16}) {
    const auto found = collectives_.find({name, other});
    if (found != collectives_.end()) return found->second.at(wanted.work, wanted.place).seconds;
  }
  return std::nullopt;
}

double Calibration::step_factor(double layer_seconds) const {
  if (data_.full_step.empty()) return 1;
  double least = data_.full_step.front().layer_seconds, most = least;
  double least_factor = data_.full_step.front().factor, most_factor = least_factor;
  double x_mean = 0, y_mean = 0;
  for (const auto& [seconds, factor] : data_.full_step) {
    least = std::min(least, seconds);
    most = std::max(most, seconds);
    least_factor = std::min(least_factor, factor);
    most_factor = std::max(most_factor, factor);
    x_mean += std::log2(seconds);
    y_mean += factor;
  }
  const auto count = static_cast<double>(data_.full_step.size());
  x_mean /= count;
  y_mean /= count;
  double xx = 0, xy = 0;
  for (const auto& [seconds, factor] : data_.full_step) {
    const double x = std::log2(seconds) - x_mean;
    xx += x * x;
    xy += x * (factor - y_mean);
  }
  const double slope = xx > 0 ? xy / xx : 0;
  const double on_line = y_mean + slope * (std::log2(std::clamp(layer_seconds, least, most)) - x_mean);
  // An outlier can tilt the line below 0.
  return std::clamp(on_line, least_factor, most_factor);
}

}  // namespace mpzero::plan
