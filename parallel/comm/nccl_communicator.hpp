#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/unwinding.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

struct ncclComm;
struct ncclWindow_vidmem;

namespace mpzero::parallel {

// A failed NCCL call. The cause may be another rank.
class CommunicatorFailure final : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return kFailureExitCode; }
};

// How a collective moves data, if there is a choice.
enum class NcclEngine {
  kKernels,  // kernels on some of the multiprocessors
  // The GPU's copy engines, if all ranks' GPUs can access each other's memory: gathers use no multiprocessors, and a
  // reduce-scatter exchanges shards by copy engines, then adds the received shards in one pass.
  kCopyEngines
};

// Collectives over tensors on the GPU, on a separate high-priority stream, so that they overlap with compute. One
// communicator per use (parameters, gradients): collectives of different communicators are unordered and can overlap.
class NcclCommunicator final : public Communicator {
 public:
  // Collective over all ranks of `mpi`, which broadcasts NCCL's unique id. Uses the rank's current CUDA device.
  // `min_channels`: minimum number of NCCL channels (ncclConfig_t::minCTAs), each with its own connections and
  // multiprocessor; 0: NCCL decides.
  explicit NcclCommunicator(MpiRuntime& mpi, NcclEngine engine = NcclEngine::kCopyEngines, int min_channels = 0);
  // Collective, and waits for collectives in progress; does nothing during stack unwinding.
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // For the user: the reason why copy engines are not used although they could reach all ranks; std::nullopt if they
  // are used, cannot reach all ranks, or were not requested.
  const std::optional<std::string>& hazard() const { return hazard_; }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  // A symmetric window, mapped by all ranks that can access it, so that data is copied directly between buffers;
  // otherwise registered with the network if NCCL supports that. Not allocated by PyTorch's allocator.
  at::Tensor buffer(int64_t numel, const at::TensorOptions& options) override;
  int64_t reserve_reduce_scatter(int64_t numel, const at::TensorOptions& options) override;
  std::unique_ptr<PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& full) override;
  std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                        SumMode mode = SumMode::kOverwrite) override;
  std::unique_ptr<PendingCollective> all_to_all(const at::Tensor& sent, const at::Tensor& received) override;
  std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor& tensor) override;
  std::optional<std::string> asynchronous_error() override;

 private:
  struct Buffer {
    void* memory = nullptr;
    ncclWindow_vidmem* window = nullptr;  // null if NCCL does not support windows or must not use them
  };

  // The stream, which now waits for the work queued on the current stream.
  c10::cuda::CUDAStream& start();
  // Ends the collective that start() began.
  std::unique_ptr<PendingCollective> finish();
  void exchange_and_sum(const at::Tensor& full, const at::Tensor& shard, SumMode mode);

  int rank_;
  int world_size_;
  Unwinding unwinding_;
  ncclComm* comm_ = nullptr;
  c10::cuda::CUDAStream stream_;
  c10::cuda::CUDAEvent inputs_ready_;  // of the collective between start() and finish()
  std::vector<Buffer> buffers_;
  bool copy_engines_;
  bool windows_ = true;  // buffers are registered as windows
  std::optional<std::string> hazard_;
  at::Tensor arrived_;  // the received shards of all ranks, if copy engines exchange them
};

}  // namespace mpzero::parallel
