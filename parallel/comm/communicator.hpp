#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "parallel/trace/flight_recorder.hpp"

namespace mpzero::parallel {

enum class SumMode { kOverwrite, kAdd };

// A collective in progress. The tensors must stay alive and unmodified until wait() is called.
class PendingCollective {
 public:
  virtual ~PendingCollective() = default;
  // Waits for the collective. On the GPU, makes later work on the current stream run after the collective, without
  // blocking the host. On the CPU, blocks until the collective completes or, within a HostOrder, makes later work run
  // after the collective. Rethrows the collective's error.
  virtual void wait() = 0;
  // Returns a handle for progress queries, or null if the collective has already completed.
  virtual std::shared_ptr<const DeviceWork> device_work() const { return nullptr; }
};

// Data plane for parameters and gradients. A collective starts after the work that is already queued on the current
// stream. All ranks must start the same collectives in the same order. For a given world size, sums are bitwise
// reproducible.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // Returns a zeroed tensor [numel] in the kind of memory that is fastest for this communicator's collectives. The
  // memory lives as long as the communicator. All ranks must request the same sizes in the same order.
  virtual at::Tensor buffer(int64_t numel, const at::TensorOptions& options);
  // Reserves memory for reduce_scatter_sum() of `full` with `numel` elements. All ranks must call
  // reserve_reduce_scatter() in the same order. Returns the number of allocated bytes.
  virtual int64_t reserve_reduce_scatter(int64_t /*numel*/, const at::TensorOptions& /*options*/) { return 0; }

  // full [world_size * n] <- the shards [n] of all ranks, in rank order. The gather is in place if `shard` is this
  // rank's shard of `full`.
  virtual std::unique_ptr<PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& full) = 0;
  // shard [n] <- (or +=) this rank's shard of the sum of full [world_size * n] over all ranks. `shard` has the dtype of
  // `full` or fp32. With kOverwrite, `shard` may alias this rank's shard of `full`. Destroys the content of `full`.
  virtual std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                                SumMode mode = SumMode::kOverwrite) = 0;
  // received [world_size * n] <- this rank's shard of `sent` [world_size * n] from each rank, in rank order. Each rank
  // sends shard r to rank r. The tensors must not overlap.
  virtual std::unique_ptr<PendingCollective> all_to_all(const at::Tensor& sent, const at::Tensor& received) = 0;
  // tensor <- the sum of `tensor` over all ranks.
  virtual std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor& tensor) = 0;

  // Returns an asynchronous error of the communicator that no call has reported, or std::nullopt. Thread-safe.
  virtual std::optional<std::string> asynchronous_error() { return std::nullopt; }
};

// A collective that completed immediately.
class CompletedCollective final : public PendingCollective {
 public:
  void wait() override {}
};

// Communicator of a single rank. Collectives are copies on the current stream.
class LocalCommunicator : public Communicator {
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
