#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mpzero {

// P ranks that each have T/P consecutive tokens of the same sequences, in the order of their ranks. For attention each
// gets all T tokens of a P-th of the heads. All of them call in the same order.
class SequenceExchange {
 public:
  virtual ~SequenceExchange() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // x [B, T/P, heads, D] -> [B, T, local heads, D]. Heads that P does not divide are repeated to the least multiple
  // that P divides.
  virtual at::Tensor to_heads(const at::Tensor& x) const = 0;
  // The transpose: y [B, T, local heads, D] -> [B, T/P, heads, D]; sums the copies of repeated heads.
  virtual at::Tensor to_tokens(const at::Tensor& y, int64_t heads) const = 0;
};

}  // namespace mpzero
