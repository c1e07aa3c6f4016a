#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/device/sequence_exchange.hpp"
#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// DeepSpeed-Ulysses (Jacobs et al., 2023, arXiv:2309.14509): an all-to-all in each direction over the P ranks of a
// communicator. Results are available to later work on the current stream.
//
// If P divides the number of query heads, each rank gets the (repeated) key and value heads for its query heads, in
// order.
class HeadExchange final : public SequenceExchange {
 public:
  // `group` must outlive this object.
  explicit HeadExchange(Communicator& group) : group_(&group) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->world_size(); }
  // Returns the number of heads per rank after to_heads(), given `heads` heads in total.
  int64_t local_heads(int64_t heads) const;
  at::Tensor to_heads(const at::Tensor& x) const override;
  at::Tensor to_tokens(const at::Tensor& y, int64_t heads) const override;

 private:
  at::Tensor exchange(const at::Tensor& sent) const;

  Communicator* group_;
};

}  // namespace mpzero::parallel
