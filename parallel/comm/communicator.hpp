#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "parallel/trace/flight_recorder.hpp"

namespace mpzero::parallel {

// Whether a sum overwrites its destination or is added to it.
enum class SumMode { kOverwrite, kAdd };

// A collective that has been started. Its tensors must stay alive and unmodified until wait() has been called.
class PendingCollective {
 public:
  virtual ~PendingCollective() = default;
  // On the GPU: work queued on the current stream from now on runs after the collective; the host does not block. On
  // the CPU: the collective has completed when this returns; within a HostOrder, work started later runs after it
  // instead. Rethrows the collective's error.
  virtual void wait() = 0;
  // A handle to query the progress; null if the collective has already completed.
  virtual std::shared_ptr<const DeviceWork> device_work() const { return nullptr; }
};

// The data plane: parameters and gradients. A collective starts after the work queued so far on the current stream, and
// all ranks must start the same collectives in the same order. For a given world_size, sums are bitwise reproducible.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // Zeroed memory [numel] in which this communicator's collectives are fastest, for data that is communicated
  // repeatedly. Lives as long as the communicator. All ranks must request the same sizes in the same order.
  virtual at::Tensor buffer(int64_t numel, const at::TensorOptions& options);
  // Reserves memory for reduce_scatter_sum() of a `full` with `numel` elements. Ordered like buffer(). Returns the
  // allocated bytes.
  virtual int64_t reserve_reduce_scatter(int64_t /*numel*/, const at::TensorOptions& /*options*/) { return 0; }

  // full [world_size * n] <- every rank's shard [n], by rank. In place if shard is this rank's shard of full.
  virtual std::unique_ptr<PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& full) = 0;
  // shard [n] <- (or +=) this rank's shard of the sum over ranks of full [world_size * n]. The shard has full's dtype
  // or is fp32. With kOverwrite, it may alias that shard of full. The content of full is destroyed.
  virtual std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                                SumMode mode = SumMode::kOverwrite) = 0;
  // received [world_size * n] <- this rank's shard of every rank's `sent` [world_size * n], by rank: each rank sends
  // its shard r to rank r. The tensors must not overlap.
  virtual std::unique_ptr<PendingCollective> all_to_all(const at::Tensor& sent, const at::Tensor& received) = 0;
  // tensor <- its sum over the ranks.
  virtual std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor& tensor) = 0;

  // An error that no call has reported; std::nullopt if there is none. From any thread.
  virtual std::optional<std::string> asynchronous_error() { return std::nullopt; }
};

// A collective that completed immediately.
class CompletedCollective final : public PendingCollective {
 public:
  void wait() override {}
};

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
