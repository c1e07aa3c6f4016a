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

// How weights become codes of one byte. All work is queued on the current stream. A range has the same codes whether it
// is encoded at once or in parts by several ranks.
class WeightCodec {
 public:
  virtual ~WeightCodec() = default;

  // What is gathered as codes: disjoint ranges that hold whole parameters; none: the unit is gathered as it is.
  virtual std::vector<CodedRange> ranges(size_t unit) const = 0;
  // The type of the codes.
  virtual at::ScalarType type() const = 0;

  // largest (fp32 scalar) <- the larger one of it and the largest magnitude of values (bf16 [n]); NaN is larger than
  // all numbers.
  virtual void raise_maximum(const at::Tensor& values, const at::Tensor& largest) const = 0;
  // scales (fp32 [2, ranges]) <- the maximum of each range, of which parts have these maxima (fp32 [parts, ranges]);
  // and what its codes are multiplied by to get the values back.
  virtual void scales_out(const at::Tensor& maxima, const at::Tensor& scales) const = 0;
  // codes (bytes [n]) <- values (bf16 [n]) of a range with this maximum (fp32 scalar).
  virtual void encode_out(const at::Tensor& values, const at::Tensor& maximum, const at::Tensor& codes) const = 0;
};

}  // namespace mpzero::parallel
