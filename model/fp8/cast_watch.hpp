#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "model/fp8/layer_product.hpp"
#include "model/fp8/matrix.hpp"

namespace mpzero::model {

enum class OperandKind : uint8_t { kInput, kWeight, kGradient };
inline constexpr std::array kOperandKinds{OperandKind::kInput, OperandKind::kWeight, OperandKind::kGradient};

constexpr std::string_view name(OperandKind kind) {
  constexpr std::array<std::string_view, kOperandKinds.size()> kNames{"input", "weight", "gradient"};
  return kNames[static_cast<size_t>(kind)];
}

// Statistics of one operand of a layer's matmul, over all micro-batches of a step.
struct CastRange {
  int64_t casts = 0;   // 0 if the operand is not FP8
  double maximum = 0;  // amax before the cast
  // `sampled`: number of values in sampled rows of an input. `zeros`: number of these values that are nonzero but
  // underflow to zero in FP8. Scaling moves the amax into (224, 448]: values below 2^-18 to 2^-19 of the amax round to
  // zero in e4m3.
  int64_t sampled = 0, zeros = 0;

  double zero_share() const { return sampled == 0 ? 0 : static_cast<double>(zeros) / static_cast<double>(sampled); }
  // Merges another rank's statistics of the same operand.
  void merge(const CastRange& other);
};

// Statistics of all operands, ordered by layer, matmul and kind.
class CastRanges {
 public:
  CastRanges() = default;
  explicit CastRanges(std::vector<CastRange> ranges) : ranges_(std::move(ranges)) {}

  bool empty() const { return ranges_.empty(); }
  int64_t layers() const {
    return static_cast<int64_t>(ranges_.size() / (kLayerProducts.size() * kOperandKinds.size()));
  }
  const CastRange& at(int64_t layer, LayerProduct product, OperandKind kind) const {
    return ranges_[index(layer, product, kind)];
  }
  const std::vector<CastRange>& all() const { return ranges_; }

  static size_t index(int64_t layer, LayerProduct product, OperandKind kind) {
    return (static_cast<size_t>(layer) * kLayerProducts.size() + static_cast<size_t>(product)) * kOperandKinds.size() +
           static_cast<size_t>(kind);
  }

 private:
  std::vector<CastRange> ranges_;
};

// Samples the FP8 casts of requested steps. Reads the amax values of the casts and some rows of FP8 data without
// synchronizing the device. Must be used only on the thread that runs the layers.
class CastWatch {
 public:
  explicit CastWatch(int64_t layers);

  // Starts sampling the casts of a step.
  void begin();
  bool is_on() const { return on_; }
  // Samples one cast. `maxima`: amax of the matrix, or of each row or column. `rows`: FP8 data of an input, cast from
  // `values`. For a weight, only the first cast in a step is sampled, because weights do not change within a step.
  void see(int64_t layer, LayerProduct product, OperandKind kind, const at::Tensor& maxima,
           const fp8::Matrix& rows = {}, const at::Tensor& values = {});
  // Starts the copy of the statistics to the host. Must be called after the step's last cast is queued on the current
  // stream.
  void end();
  // Returns the statistics. The statistics are valid after the device has completed all work that was queued when end()
  // returned.
  CastRanges ranges() const;

 private:
  std::vector<CastRange> seen_;            // `maximum` and `zeros` are unset; see found_
  at::Tensor found_, on_host_;             // [2, operands] fp64: maxima, zeros
  std::map<int64_t, at::Tensor> samples_;  // sampled row indices, keyed by the matrix's number of rows
  bool on_ = false;
};

}  // namespace mpzero::model
