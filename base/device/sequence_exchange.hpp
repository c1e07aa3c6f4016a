#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mpzero {

// All-to-all for sequence parallelism over P ranks. Each rank has T/P consecutive tokens of the same sequences, in rank
// order. For attention, each rank gets all T tokens for 1/P of the heads. All ranks must call to_heads() and
// to_tokens() in the same order.
class SequenceExchange {
 public:
  virtual ~SequenceExchange() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Converts x [B, T/P, heads, D] to [B, T, local heads, D]. If P does not divide the number of heads, heads are
  // repeated up to the least common multiple of both numbers.
  virtual at::Tensor to_heads(const at::Tensor& x) const = 0;
  // Applies the transpose of to_heads(): y [B, T, local heads, D] -> [B, T/P, heads, D]. Sums the copies of repeated
  // heads.
  virtual at::Tensor to_tokens(const at::Tensor& y, int64_t heads) const = 0;
};

}  // namespace mpzero
