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

// Quantizes weights to one byte per element. All work is queued on the current stream. Results are bitwise equal
// whether a range is quantized as a whole or in parts on several ranks.
class WeightCodec {
 public:
  virtual ~WeightCodec() = default;

  // Returns the disjoint ranges to gather in quantized form. Each range consists of whole parameters. Returns an empty
  // vector if the unit is gathered without quantization.
  virtual std::vector<CodedRange> ranges(size_t unit) const = 0;
  // Returns the dtype of quantized elements.
  virtual at::ScalarType type() const = 0;

  // largest (fp32 scalar) <- max(largest, amax of values (bf16 [n])). Propagates NaN.
  virtual void raise_maximum(const at::Tensor& values, const at::Tensor& largest) const = 0;
  // scales (fp32 [2, ranges]) <- the amax and the dequantization factor of each range, computed from the amax of each
  // part (fp32 [parts, ranges]).
  virtual void scales_out(const at::Tensor& maxima, const at::Tensor& scales) const = 0;
  // codes (bytes [n]) <- values (bf16 [n]), scaled by the amax of the range (fp32 scalar).
  virtual void encode_out(const at::Tensor& values, const at::Tensor& maximum, const at::Tensor& codes) const = 0;
};

}  // namespace mpzero::parallel
