#pragma once

#include <c10/cuda/CUDAStream.h>

#include "parallel/communicator.hpp"
#include "parallel/mpi_runtime.hpp"

struct ncclComm;

namespace mpzero::parallel {

// Collectives over tensors on the GPU, on a high-priority stream of their own, so that they run beside compute. One
// communicator a use (parameters, gradients): two that share none of their order can overlap.
class NcclCommunicator final : public Communicator {
 public:
  // Collective over all ranks of `mpi`, which carries NCCL's unique id. The current CUDA device is the rank's.
  explicit NcclCommunicator(MpiRuntime& mpi);
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  std::unique_ptr<PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& whole) override;
  std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor& whole, const at::Tensor& shard) override;
  std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor& tensor) override;

 private:
  // The stream, made to wait for what the current stream has queued.
  c10::cuda::CUDAStream& start();
  std::unique_ptr<PendingCollective> finish();

  int rank_;
  int world_size_;
  ncclComm* comm_ = nullptr;
  c10::cuda::CUDAStream stream_;
};

}  // namespace mpzero::parallel
