#pragma once

#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// The communicator for one rank. Its collectives only copy, on the current stream.
class LocalCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  std::unique_ptr<PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& full) override;
  std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                        SumMode mode = SumMode::kOverwrite) override;
  std::unique_ptr<PendingCollective> all_to_all(const at::Tensor& sent, const at::Tensor& received) override;
  std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor& tensor) override;
};

}  // namespace mpzero::parallel
