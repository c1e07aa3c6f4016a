#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/cuda/Sleep.h>
#include <ATen/ops/mul.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <memory>
#include <random>
#include <utility>

#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// Communicator of one of several ranks on a GPU, without the other ranks. Sums contain only this rank's data, and
// gathers compute the other ranks' shards from this rank's shard. Like NCCL's collectives, each collective runs on a
// separate stream, here after a delay, so work that does not wait for the collective reads wrong values.
class AbsentPeers final : public Communicator {
 public:
  AbsentPeers(int rank, int world_size, unsigned seed)
      : rank_(rank), world_size_(world_size), random_(seed), stream_(c10::cuda::getStreamFromPool()) {}

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  std::unique_ptr<PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& full) override {
    return late([&] {
      const at::Tensor own = shard.clone();
      for (int rank = 0; rank < world_size_; ++rank) {
        full.narrow(0, rank * own.numel(), own.numel())
            .copy_(rank == rank_
                       ? own
                       : (shard.scalar_type() == at::kByte ? own
                                                           : own.mul(shard.scalar_type() == at::kDouble ? 0.0 : 0.5)));
      }
    });
  }
  std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                        SumMode mode) override {
    return late([&] {
      const at::Tensor own = full.narrow(0, rank_ * shard.numel(), shard.numel()).clone();
      mode == SumMode::kAdd ? shard.add_(own) : shard.copy_(own);
    });
  }
  // Each rank receives its own data.
  std::unique_ptr<PendingCollective> all_to_all(const at::Tensor& sent, const at::Tensor& received) override {
    return late([&] { received.copy_(sent); });
  }
  std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor& /*tensor*/) override {
    return late([] {});
  }

 private:
  class Pending final : public PendingCollective {
   public:
    explicit Pending(c10::cuda::CUDAEvent done) : done_(std::move(done)) {}
    void wait() override { done_.block(c10::cuda::getCurrentCUDAStream()); }

   private:
    c10::cuda::CUDAEvent done_;
  };

  template <typename Work>
  std::unique_ptr<PendingCollective> late(const Work& work) {
    c10::cuda::CUDAEvent inputs_ready, done;
    inputs_ready.record(c10::cuda::getCurrentCUDAStream());
    inputs_ready.block(stream_);
    const c10::StreamGuard on_stream(stream_);
    at::cuda::sleep(static_cast<int64_t>(random_() % 400'000));  // cycles: up to about 0.2 ms
    work();
    done.record(stream_);
    return std::make_unique<Pending>(std::move(done));
  }

  int rank_;
  int world_size_;
  std::minstd_rand random_;
  c10::cuda::CUDAStream stream_;
};

}  // namespace mpzero::parallel
