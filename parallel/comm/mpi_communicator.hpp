#pragma once

#include "parallel/comm/communicator.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero::parallel {

// Collectives over tensors in host memory. MPI moves data only inside its own calls, so each collective completes
// before it returns. bf16 is summed in fp32 and rounded once.
class MpiCommunicator final : public Communicator {
 public:
  // Over the ranks of `mpi`, which it must not outlive.
  explicit MpiCommunicator(const MpiRuntime& mpi)
      : group_(mpi.group()), rank_(mpi.rank()), world_size_(mpi.world_size()) {}

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  std::unique_ptr<PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& full) override;
  std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                        SumMode mode = SumMode::kOverwrite) override;
  std::unique_ptr<PendingCollective> all_to_all(const at::Tensor& sent, const at::Tensor& received) override;
  std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor& tensor) override;

 private:
  const MpiGroup& group_;
  int rank_;
  int world_size_;
};

}  // namespace mpzero::parallel
