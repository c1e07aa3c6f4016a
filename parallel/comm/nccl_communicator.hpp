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

// A failed NCCL call, possibly caused by another rank.
class CommunicatorFailure final : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return kFailureExitCode; }
};

// Transfer engine for collectives that support both NCCL kernels and copy engines.
enum class NcclEngine {
  kKernels,  // NCCL kernels, which occupy some SMs
  // The GPU's copy engines, if all GPUs can access each other's memory. With copy engines, gathers use no SMs. A
  // reduce-scatter exchanges shards with copy engines, then adds the received shards in one pass.
  kCopyEngines
};

// Returns the number of ranks per host among which communicators use copy engines; 1 if copy engines are not used. Uses
// the rank's current CUDA device. Collective.
int copy_engine_ranks(MpiRuntime& mpi);

// Collectives on GPU tensors, on a separate high-priority stream, so that they overlap with compute. Parameters and
// gradients use separate communicators, whose collectives are not ordered relative to each other and can overlap.
class NcclCommunicator final : public Communicator {
 public:
  // Must be called by all ranks of `mpi`, which broadcasts NCCL's unique ID. Uses the rank's current CUDA device.
  // `min_channels`: minimum number of NCCL channels (ncclConfig_t::minCTAs), or 0 for NCCL's default. Each channel has
  // its own connections and occupies one SM.
  explicit NcclCommunicator(MpiRuntime& mpi, NcclEngine engine = NcclEngine::kCopyEngines, int min_channels = 0);
  // Waits for collectives in progress. All ranks must destroy the communicator. No-op during stack unwinding.
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // If copy engines were requested and can reach all ranks but are not used, returns the reason as text for the user.
  // Otherwise, returns std::nullopt.
  const std::optional<std::string>& hazard() const { return hazard_; }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  // Allocates a buffer with ncclMemAlloc() instead of PyTorch's allocator, and registers the buffer as a symmetric
  // window, so that data is copied directly between the ranks' buffers.
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
    ncclWindow_vidmem* window = nullptr;  // null if windows are not supported or must not be used
  };

  // Makes the collectives' stream wait for the work queued on the current stream, and returns the collectives' stream.
  c10::cuda::CUDAStream& start();
  // Completes the launch of the collective that start() began.
  std::unique_ptr<PendingCollective> finish();
  void exchange_and_sum(const at::Tensor& full, const at::Tensor& shard, SumMode mode);

  int rank_;
  int world_size_;
  Unwinding unwinding_;
  ncclComm* comm_ = nullptr;
  c10::cuda::CUDAStream stream_;
  c10::cuda::CUDAEvent inputs_ready_;  // recorded in start()
  std::vector<Buffer> buffers_;
  bool copy_engines_;
  bool windows_ = true;  // buffers are registered as windows
  std::optional<std::string> hazard_;
  at::Tensor arrived_;  // shards received from all ranks by copy engines
};

}  // namespace mpzero::parallel
