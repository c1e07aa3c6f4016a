#pragma once

#include <memory>

#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// A communicator that transfers no data. All collectives call start(), which subclasses override.
class StubCommunicator : public Communicator {
 public:
  explicit StubCommunicator(int world_size = 2, int rank = 0) : world_size_(world_size), rank_(rank) {}
  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  std::unique_ptr<PendingCollective> all_gather(const at::Tensor&, const at::Tensor&) override { return start(); }
  std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor&, const at::Tensor&, SumMode) override {
    return start();
  }
  std::unique_ptr<PendingCollective> all_to_all(const at::Tensor&, const at::Tensor&) override { return start(); }
  std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor&) override { return start(); }

 private:
  virtual std::unique_ptr<PendingCollective> start() { return std::make_unique<CompletedCollective>(); }

  int world_size_, rank_;
};

}  // namespace mpzero::parallel
