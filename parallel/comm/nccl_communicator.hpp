#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "base/unwinding.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

struct ncclComm;
struct ncclWindow_vidmem;

namespace mpzero::parallel {

// Who moves the bytes of a collective where both ways exist.
enum class NcclEngine {
  kKernels,  // kernels on some of the multiprocessors
  // The GPU's copy engines, where all ranks' GPUs reach each other's memory: gathers leave the multiprocessors alone,
  // and a sum is an exchange of slices by copy engines and one pass of this rank over what has arrived.
  kCopyEngines
};

// Collectives over tensors on the GPU, on a high-priority stream of their own, so that they run beside compute. One
// communicator a use (parameters, gradients): two that share none of their order can overlap.
class NcclCommunicator final : public Communicator {
 public:
  // Collective over all ranks of `mpi`, which carries NCCL's unique id. The current CUDA device is the rank's.
  explicit NcclCommunicator(MpiRuntime& mpi, NcclEngine engine = NcclEngine::kCopyEngines);
  // Collective, and waits for what is under way; while an exception is passing by it does nothing at all.
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Why copy engines are not used although they reach all ranks, for the user; none: they are, or do not, or were not
  // asked for.
  const std::optional<std::string>& hazard() const { return hazard_; }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  // Mapped by all ranks that can reach it (a symmetric window), so that data goes straight from buffer to buffer;
  // registered with the network elsewhere, where NCCL can. Outside PyTorch's allocator.
  at::Tensor buffer(int64_t numel, const at::TensorOptions& options) override;
  int64_t reserve_reduce_scatter(int64_t numel, const at::TensorOptions& options) override;
  std::unique_ptr<PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& whole) override;
  std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor& whole, const at::Tensor& shard,
                                                        SumMode mode = SumMode::kOverwrite) override;
  std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor& tensor) override;
  std::optional<std::string> asynchronous_error() override;
  void abort() override;

 private:
  struct Buffer {
    void* memory = nullptr;
    ncclWindow_vidmem* window = nullptr;  // null where NCCL knows no windows, or must not
  };

  // The stream, made to wait for what the current stream has queued.
  c10::cuda::CUDAStream& start();
  // What start() has begun ends here.
  std::unique_ptr<PendingCollective> finish();
  void exchange_and_sum(const at::Tensor& whole, const at::Tensor& shard, SumMode mode);

  int rank_;
  int world_size_;
  Unwinding unwinding_;
  ncclComm* comm_ = nullptr;
  c10::cuda::CUDAStream stream_;
  at::cuda::CUDAEvent inputs_ready_;  // of the collective between start() and finish()
  std::atomic<bool> aborted_{false};
  std::vector<Buffer> buffers_;
  bool copy_engines_;
  bool windows_ = true;  // buffers are registered as such
  std::optional<std::string> hazard_;
  at::Tensor arrived_;  // the slices of all ranks, where copy engines exchange them
};

}  // namespace mpzero::parallel
