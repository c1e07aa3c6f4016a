#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "parallel/host/memory_use.hpp"
#include "parallel/zero/compression.hpp"
#include "parallel/zero/flat_unit.hpp"

namespace mpzero::parallel {

// Sums node shards between nodes in few bits (Wang et al. 2023, ZeRO++), with error feedback (Seide et al. 2014): each
// rank adds to its addends what it has not sent in the steps before, its residual, quantizes the shards of the other
// nodes, and sends each to its owner only. The owner adds up in fp32, in the order of the nodes. Its own addend never
// leaves the GPU, so that it is added as it is: with two nodes half of the sum is exact. What an element gets over many
// steps differs from the exact sum by the residuals at the end, each less than a step of the quantization.
class GradientExchange {
 public:
  struct Options {
    Compression compression;
    at::ScalarType residual_dtype = at::kFloat;
    at::Device device = at::kCPU;
  };

  // `shard_index`: of this rank. The layouts and the communicator outlive it.
  GradientExchange(const std::vector<FlatLayout>& layouts, int shard_index, Communicator& inter_node,
                   const Options& options);

  // Before sum() changes residuals, it calls this, which makes the current stream wait for whoever reads them.
  void set_reader(std::function<void()> wait) { wait_for_reader_ = std::move(wait); }
  // Steps of one number round alike.
  void begin_step(int64_t step) { step_ = step; }
  // shard [shard_numel] <- the sum over the nodes of node_sum [node_shard_numel], both fp32 or bf16; `shard` may be
  // this rank's own part of `node_sum`. Starts with what the current stream has, which is the same stream at each call,
  // and keeps it busy until the end.
  std::unique_ptr<PendingCollective> sum(size_t unit, const at::Tensor& node_sum, const at::Tensor& shard);

  // What this rank has not sent yet to the other nodes, in their order [nodes - 1, shard_numel].
  const at::Tensor& residual(size_t unit) const { return residuals_[unit]; }
  // Forgets it.
  void clear();

  // Of the residuals and the messages.
  MemoryUse memory_use() const;

 private:
  const std::vector<FlatLayout>& layouts_;
  int shard_index_;
  Communicator& inter_node_;
  Options options_;
  int64_t step_ = 0;
  std::vector<at::Tensor> residuals_;
  at::Tensor sent_, received_;  // bytes: a message for each node, and from each
  std::function<void()> wait_for_reader_;
};

}  // namespace mpzero::parallel
