#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/device/sequence_exchange.hpp"
#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// DeepSpeed-Ulysses (Jacobs et al., 2023, arXiv:2309.14509): an all-to-all in each direction, over the P ranks of a
// communicator. Results are ordered on the current stream.
//
// If P divides the query heads, a rank gets the (repeated) key and value heads that its query heads read, in order.
class HeadExchange final : public SequenceExchange {
 public:
  // `group` outlives this.
  explicit HeadExchange(Communicator& group) : group_(&group) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->world_size(); }
  // Number of heads per rank after to_heads(), out of `heads`.
  int64_t local_heads(int64_t heads) const;
  at::Tensor to_heads(const at::Tensor& x) const override;
  at::Tensor to_tokens(const at::Tensor& y, int64_t heads) const override;

 private:
  at::Tensor exchange(const at::Tensor& sent) const;

  Communicator* group_;
};

}  // namespace mpzero::parallel
