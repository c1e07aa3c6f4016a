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

// The operands of a layer's products.
enum class OperandKind : uint8_t { kInput, kWeight, kGradient };
inline constexpr std::array kOperandKinds{OperandKind::kInput, OperandKind::kWeight, OperandKind::kGradient};

constexpr std::string_view name(OperandKind kind) {
  constexpr std::array<std::string_view, kOperandKinds.size()> kNames{"input", "weight", "gradient"};
  return kNames[static_cast<size_t>(kind)];
}

// Statistics of one operand of one layer's product, over the micro-batches of a step.
struct CastRange {
  int64_t casts = 0;   // 0: the operand is not FP8
  double maximum = 0;  // the largest magnitude before the cast
  // For sampled rows of inputs: the number of values, and of nonzero values that become 0 in FP8. With the largest
  // value scaled to nearly 448, e4m3 has no number below 2^-9: values below 2^-18 to 2^-19 of the largest become 0.
  int64_t sampled = 0, zeros = 0;

  double zero_share() const { return sampled == 0 ? 0 : static_cast<double>(zeros) / static_cast<double>(sampled); }
  // Merges another rank's statistics of the same operand.
  void merge(const CastRange& other);
};

// The statistics of all operands, ordered by layer, product and kind.
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

// Samples the FP8 casts of requested steps: reads the maxima of the casts and some rows of FP8 data, without
// synchronization. Only for the thread that runs the layers.
class CastWatch {
 public:
  explicit CastWatch(int64_t layers);

  // Starts a sampled step.
  void begin();
  bool is_on() const { return on_; }
  // Samples one cast. `maxima`: the largest magnitude of the matrix, or of each row or column. `rows`: the FP8 data of
  // an input, cast from `values`. Weights do not change within a step, so only their first cast is sampled.
  void see(int64_t layer, LayerProduct product, OperandKind kind, const at::Tensor& maxima,
           const fp8::Matrix& rows = {}, const at::Tensor& values = {});
  // Call when the step's last cast is queued on the current stream; starts the copy of the statistics to the host.
  void end();
  // Valid once the device has finished the work that was queued when end() returned.
  CastRanges ranges() const;

 private:
  std::vector<CastRange> seen_;            // except maximum and zeros, see found_
  at::Tensor found_, on_host_;             // [2, operands] fp64: maxima, zeros
  std::map<int64_t, at::Tensor> samples_;  // sampled row indices, by the matrix's number of rows
  bool on_ = false;
};

}  // namespace mpzero::model
