#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mpzero {

// All-to-all of sequence parallelism: each of P ranks has T/P consecutive tokens of the same sequences, in rank order.
// For attention, each gets all T tokens for 1/P of the heads. All ranks must call in the same order.
class SequenceExchange {
 public:
  virtual ~SequenceExchange() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // x [B, T/P, heads, D] -> [B, T, local heads, D]. If P does not divide the number of heads, heads are repeated up to
  // the least common multiple.
  virtual at::Tensor to_heads(const at::Tensor& x) const = 0;
  // The transpose: y [B, T, local heads, D] -> [B, T/P, heads, D]; sums the copies of repeated heads.
  virtual at::Tensor to_tokens(const at::Tensor& y, int64_t heads) const = 0;
};

}  // namespace mpzero
