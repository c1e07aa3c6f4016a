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

// Which operand of its products a matrix is.
enum class OperandKind : uint8_t { kInput, kWeight, kGradient };
inline constexpr std::array kOperandKinds{OperandKind::kInput, OperandKind::kWeight, OperandKind::kGradient};

constexpr std::string_view name(OperandKind kind) {
  constexpr std::array<std::string_view, kOperandKinds.size()> kNames{"input", "weight", "gradient"};
  return kNames[static_cast<size_t>(kind)];
}

// What one operand of one layer's product was like, over the micro-batches of a step.
struct CastRange {
  int64_t casts = 0;   // 0: it is not in FP8
  double maximum = 0;  // the largest magnitude before the cast
  // Of some rows of inputs: values, and those that are 0 in FP8 alone. Scaled so that the largest is near 448, e4m3 has
  // no number below 2^-9: what is less than 2^-18 to 2^-19 of the largest value becomes 0.
  int64_t sampled = 0, zeros = 0;

  double zero_share() const { return sampled == 0 ? 0 : static_cast<double>(zeros) / static_cast<double>(sampled); }
  // With another rank's of the same operand.
  void merge(const CastRange& other);
};

// Of all operands, in the order of layers, products, kinds.
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

// Samples the FP8 casts of requested steps: reads the maxima of the casts and some rows of codes, without
// synchronization. For the one thread that runs the layers.
class CastWatch {
 public:
  explicit CastWatch(int64_t layers);

  // A step begins that is watched.
  void begin();
  bool is_on() const { return on_; }
  // A cast of it: the largest magnitude of the matrix, or those of its rows or columns. `rows`: the codes of an input,
  // and `values` what they were cast from. Weights do not change within a step: further casts of theirs are not looked
  // at.
  void see(int64_t layer, LayerProduct product, OperandKind kind, const at::Tensor& maxima,
           const fp8::Matrix& rows = {}, const at::Tensor& values = {});
  // The step's last cast is queued on the current stream; starts the way of what was seen to the host.
  void end();
  // Valid once the device has done what was queued when end() returned.
  CastRanges ranges() const;

 private:
  std::vector<CastRange> seen_;            // but for what is on its way
  at::Tensor found_, on_host_;             // [2, operands] fp64: maxima, zeros
  std::map<int64_t, at::Tensor> samples_;  // by the number of rows of a matrix: those that are read
  bool on_ = false;
};

}  // namespace mpzero::model
