#include "parallel/comm/communicator.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

namespace mpzero::parallel {
at::Tensor Communicator::buffer(int64_t numel, const at::TensorOptions& options) { return at::zeros({numel}, options); }

std::unique_ptr<PendingCollective> LocalCommunicator::all_gather(const at::Tensor& shard, const at::Tensor& full) {
  if (shard.data_ptr() != full.data_ptr()) full.copy_(shard);
  return std::make_unique<CompletedCollective>();
}

std::unique_ptr<PendingCollective> LocalCommunicator::reduce_scatter_sum(const at::Tensor& full,
                                                                         const at::Tensor& shard, SumMode mode) {
  if (mode == SumMode::kAdd) {
    shard.add_(full);
  } else if (shard.data_ptr() != full.data_ptr()) {
    shard.copy_(full);
  }
  return std::make_unique<CompletedCollective>();
}

std::unique_ptr<PendingCollective> LocalCommunicator::all_to_all(const at::Tensor& sent, const at::Tensor& received) {
  received.copy_(sent);
  return std::make_unique<CompletedCollective>();
}

std::unique_ptr<PendingCollective> LocalCommunicator::all_reduce_sum(const at::Tensor& tensor) {
  return std::make_unique<CompletedCollective>();
}

}  // namespace mpzero::parallel
