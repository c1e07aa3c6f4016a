#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mpzero::parallel {

// Elements [begin, begin + count) of a flat unit that share a scale.
struct CodedRange {
  int64_t begin = 0;
  int64_t count = 0;
};

// Quantizes weights to one byte per element. All work is queued on the current stream. Quantizing a range at once, or
// in parts on several ranks, gives the same bits.
class WeightCodec {
 public:
  virtual ~WeightCodec() = default;

  // The ranges to gather quantized: disjoint, of whole parameters; empty: the unit is gathered unquantized.
  virtual std::vector<CodedRange> ranges(size_t unit) const = 0;
  // The dtype of quantized elements.
  virtual at::ScalarType type() const = 0;

  // largest (fp32 scalar) <- the maximum of `largest` and the magnitudes of values (bf16 [n]); NaN is larger than all
  // numbers.
  virtual void raise_maximum(const at::Tensor& values, const at::Tensor& largest) const = 0;
  // scales (fp32 [2, ranges]) <- the maximum of each range, from the maxima of its parts (fp32 [parts, ranges]); and
  // the factor that dequantizes it.
  virtual void scales_out(const at::Tensor& maxima, const at::Tensor& scales) const = 0;
  // codes (bytes [n]) <- quantized values (bf16 [n]) of a range with this maximum (fp32 scalar).
  virtual void encode_out(const at::Tensor& values, const at::Tensor& maximum, const at::Tensor& codes) const = 0;
};

}  // namespace mpzero::parallel
