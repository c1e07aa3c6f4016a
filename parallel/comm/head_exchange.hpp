#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// DeepSpeed-Ulysses (Jacobs et al., 2023, arXiv:2309.14509): ranks that each have T/P consecutive tokens of the same
// sequences and all heads exchange them for all T tokens of some heads, and back. The place of a rank is its rank in
// the communicator, which has P ranks. Each direction is the transpose of the other, so it computes its gradient.
//
// Heads that P does not divide, as keys and values may have, are repeated to the least multiple that P divides; then a
// rank has the key heads that its query heads read, in their order, as long as query heads are a multiple of both.
//
// All ranks call in the same order. Results belong to the current stream.
class HeadExchange {
 public:
  // `group` outlives this.
  explicit HeadExchange(Communicator& group) : group_(&group) {}

  // How many heads of `heads` a rank has after to_heads().
  int64_t local_heads(int64_t heads) const;
  // x [B, T/P, heads, D] -> [B, T, local_heads(heads), D].
  at::Tensor to_heads(const at::Tensor& x) const;
  // y [B, T, local_heads(heads), D] -> [B, T/P, heads, D]; sums the copies of repeated heads.
  at::Tensor to_tokens(const at::Tensor& y, int64_t heads) const;

 private:
  at::Tensor exchange(const at::Tensor& sent) const;

  Communicator* group_;
};

}  // namespace mpzero::parallel
