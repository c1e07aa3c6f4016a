#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "parallel/host/memory_use.hpp"
#include "parallel/quantization/block_format.hpp"
#include "parallel/streams/streams.hpp"
#include "parallel/zero/flat_unit.hpp"

namespace mpzero::parallel {

// A collective, and the work on its result that the current stream has when this is made.
class PendingExchange final : public PendingCollective {
 public:
  PendingExchange(std::unique_ptr<PendingCollective> collective, c10::Device device)
      : collective_(std::move(collective)), device_(device) {
    if (!has_streams(device)) return;
    done_.emplace(device.type());
    done_->record(current_stream(device));
  }
  // The collective's own wait comes first, so that its time is measured as such.
  void wait() override {
    collective_->wait();
    if (done_) done_->block(current_stream(device_));
  }

 private:
  std::unique_ptr<PendingCollective> collective_;
  c10::Device device_;
  std::optional<c10::Event> done_;
};

// Gathers node shards between nodes in int8. What all nodes hold, the shared copy, is the node shard itself; the
// optimizer writes its new values elsewhere. The owner of a shard sends the difference between the two, and every node,
// the owner's too, adds what was sent to its copy, so that all copies have the same bits. What the rounding loses is
// part of the next difference. A unit's values are sent as they are at first, so that copies begin equal.
class ParameterExchange {
 public:
  // `parameters`: their type and device. `shard_index`: of this rank. The layouts and the communicator outlive it.
  ParameterExchange(const std::vector<FlatLayout>& layouts, int shard_index, Communicator& inter_node,
                    const at::TensorOptions& parameters);

  // What the optimizer writes: this rank's new values [shard_numel].
  const at::Tensor& wanted(size_t unit) const { return wanted_[unit]; }
  // This rank's part of the shared copy.
  at::Tensor own(size_t unit, const at::Tensor& node_shard) const;

  // node_shard [node_shard_numel] <- nearer to what the nodes want. Starts with what the current stream has, which is
  // the same stream at each call, and keeps it busy until the end.
  std::unique_ptr<PendingCollective> gather(size_t unit, const at::Tensor& node_shard);

  // The next gather() of each unit sends the values themselves.
  void begin_with_wanted() { next_.assign(next_.size(), Next::kWanted); }
  // The next gather() of the unit sends own() as it is.
  void begin_with_own(size_t unit) { next_[unit] = Next::kOwn; }

  // Of the wanted values and the messages.
  MemoryUse memory_use() const;

 private:
  enum class Next : uint8_t { kWanted, kOwn, kDifference };

  const std::vector<FlatLayout>& layouts_;
  int shard_index_;
  Communicator& inter_node_;
  std::vector<at::Tensor> wanted_;
  std::vector<Next> next_;
  at::Tensor messages_;  // bytes: one from each node
};

// What crosses between nodes in fewer bits; nothing does within a node.
struct Compression {
  int gradient_bits = 0;  // 8 or 4; 0: gradients cross as they are
  bool weights = false;   // parameters cross as int8 differences
  uint64_t seed = 0;      // of the random rounding of gradients

  // Of the gradients, if they are compressed.
  const BlockFormat& gradient_format() const { return gradient_bits == 4 ? kInt4 : kInt8; }
};

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
