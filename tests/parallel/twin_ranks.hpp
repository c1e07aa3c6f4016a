#pragma once

#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

#include <memory>
#include <utility>

#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// Simulates two ranks with the same data. The other rank does not exist.
class TwinRanks : public Communicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 2; }
  at::Tensor buffer(int64_t numel, const at::TensorOptions& options) override {
    ++buffers_made;
    return at::zeros({numel}, options);
  }
  std::unique_ptr<PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& full) override {
    full.narrow(0, 0, shard.numel()).copy_(shard);
    full.narrow(0, shard.numel(), shard.numel()).copy_(shard);
    return std::make_unique<CompletedCollective>();
  }
  std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                        SumMode mode) override {
    // The sum completes when wait() is called, as on a GPU.
    return std::make_unique<PendingSum>(full, shard, mode);
  }
  std::unique_ptr<PendingCollective> all_to_all(const at::Tensor& sent, const at::Tensor& received) override {
    received.copy_(sent.narrow(0, 0, sent.numel() / 2).repeat(2));
    return std::make_unique<CompletedCollective>();
  }
  std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor& tensor) override {
    tensor.mul_(2);
    return std::make_unique<CompletedCollective>();
  }

  int buffers_made = 0;

 private:
  class PendingSum final : public PendingCollective {
   public:
    PendingSum(at::Tensor full, at::Tensor shard, SumMode mode)
        : full_(std::move(full)), shard_(std::move(shard)), mode_(mode) {}
    void wait() override {
      const at::Tensor sum = full_.narrow(0, 0, shard_.numel()).mul(2);
      mode_ == SumMode::kAdd ? shard_.add_(sum) : shard_.copy_(sum);
    }

   private:
    at::Tensor full_, shard_;
    SumMode mode_;
  };
};

}  // namespace mpzero::parallel
