#include "parallel/comm/local_communicator.hpp"

namespace mpzero::parallel {

std::unique_ptr<PendingCollective> LocalCommunicator::all_gather(const at::Tensor& shard, const at::Tensor& whole) {
  if (shard.data_ptr() != whole.data_ptr()) whole.copy_(shard);
  return std::make_unique<CompletedCollective>();
}

std::unique_ptr<PendingCollective> LocalCommunicator::reduce_scatter_sum(const at::Tensor& whole,
                                                                         const at::Tensor& shard, SumMode mode) {
  if (mode == SumMode::kAdd) {
    shard.add_(whole);
  } else if (shard.data_ptr() != whole.data_ptr()) {
    shard.copy_(whole);
  }
  return std::make_unique<CompletedCollective>();
}

std::unique_ptr<PendingCollective> LocalCommunicator::all_reduce_sum(const at::Tensor& tensor) {
  return std::make_unique<CompletedCollective>();
}

}  // namespace mpzero::parallel
