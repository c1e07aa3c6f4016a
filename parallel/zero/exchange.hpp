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

// A collective followed by work on its result. The work must be queued on the current stream before construction.
class PendingExchange final : public PendingCollective {
 public:
  PendingExchange(std::unique_ptr<PendingCollective> collective, c10::Device device)
      : collective_(std::move(collective)), device_(device) {
    if (!has_streams(device)) return;
    done_.emplace(device.type());
    done_->record(current_stream(device));
  }
  // Waits for the collective first, so that the collective's time is measured separately.
  void wait() override {
    collective_->wait();
    if (done_) done_->block(current_stream(device_));
  }

 private:
  std::unique_ptr<PendingCollective> collective_;
  c10::Device device_;
  std::optional<c10::Event> done_;
};

// Gathers node shards across nodes in int8. A node shard is a shared copy, identical on all nodes; the optimizer writes
// new values to a separate tensor. A shard's owner sends the quantized difference between its new values and the shared
// copy. Every node, including the owner's, adds this message to its copy, so all copies stay bitwise equal. The
// rounding error becomes part of the next difference. A unit's first gather sends unquantized values, so that all
// copies start equal.
class ParameterExchange {
 public:
  // `parameters`: dtype and device of the parameters. `shard_index`: index of this rank's shard. The layouts and the
  // communicator must outlive this object.
  ParameterExchange(const std::vector<FlatLayout>& layouts, int shard_index, Communicator& inter_node,
                    const at::TensorOptions& parameters);

  // Returns the tensor [shard_numel] to which the optimizer writes this rank's new values.
  const at::Tensor& wanted(size_t unit) const { return wanted_[unit]; }
  // Returns this rank's part of the shared copy, as a view of `node_shard`.
  at::Tensor own(size_t unit, const at::Tensor& node_shard) const;

  // Updates node_shard [node_shard_numel] with the messages of all nodes, after the work queued on the current stream.
  // All calls must use the same current stream, which waits until the collective completes.
  std::unique_ptr<PendingCollective> gather(size_t unit, const at::Tensor& node_shard);

  // Makes each unit's next gather() send wanted() without quantization.
  void begin_with_wanted() { next_.assign(next_.size(), Next::kWanted); }
  // Makes the unit's next gather() send own() without quantization.
  void begin_with_own(size_t unit) { next_[unit] = Next::kOwn; }

  // Returns the memory used by the wanted values and the messages.
  MemoryUse memory_use() const;

 private:
  enum class Next : uint8_t { kWanted, kOwn, kDifference };

  const std::vector<FlatLayout>& layouts_;
  int shard_index_;
  Communicator& inter_node_;
  std::vector<at::Tensor> wanted_;
  std::vector<Next> next_;
  at::Tensor messages_;  // bytes: one message per node
};

// Compression of traffic between nodes. Traffic within a node is not compressed.
struct Compression {
  int gradient_bits = 0;  // 8 or 4; 0: uncompressed
  bool weights = false;   // send parameters as int8 differences
  uint64_t seed = 0;      // seed of the stochastic rounding of gradients

  const BlockFormat& gradient_format() const { return gradient_bits == 4 ? kInt4 : kInt8; }
};

// Sums node shards across nodes in 8 or 4 bits (ZeRO++, Wang et al. 2023) with error feedback (Seide et al. 2014). Each
// rank adds its residual (the rounding errors of earlier steps) to its addends, quantizes the shards of the other
// nodes, and sends each shard to its owner. The owner sums the addends in fp32, in node order, and uses its own addend
// unquantized. With two nodes, half of the addends are therefore exact. Over many steps, an element's total differs
// from the exact sum by the final residuals, each smaller than a quantization step.
class GradientExchange {
 public:
  struct Options {
    Compression compression;
    at::ScalarType residual_dtype = at::kFloat;
    at::Device device = at::kCPU;
  };

  // `shard_index`: index of this rank's shard. The layouts and the communicator must outlive this object.
  GradientExchange(const std::vector<FlatLayout>& layouts, int shard_index, Communicator& inter_node,
                   const Options& options);

  // Sets a callback that sum() calls before it changes residuals. The callback must make the current stream wait for
  // readers of the residuals.
  void set_reader(std::function<void()> wait) { wait_for_reader_ = std::move(wait); }
  // Sets the step number, which selects the random numbers for stochastic rounding.
  void begin_step(int64_t step) { step_ = step; }
  // shard [shard_numel] <- this rank's shard of the sum of node_sum [node_shard_numel] over the nodes, both fp32 or
  // bf16. `shard` may alias this rank's part of `node_sum`. The sum runs after the work queued on the current stream.
  // All calls must use the same current stream, which waits until the collective completes.
  std::unique_ptr<PendingCollective> sum(size_t unit, const at::Tensor& node_sum, const at::Tensor& shard);

  // Returns the rounding errors not yet sent to the other nodes, [nodes - 1, shard_numel] in node order.
  const at::Tensor& residual(size_t unit) const { return residuals_[unit]; }
  // Zeroes all residuals.
  void clear();

  // Returns the memory used by the residuals and the messages.
  MemoryUse memory_use() const;

 private:
  const std::vector<FlatLayout>& layouts_;
  int shard_index_;
  Communicator& inter_node_;
  Options options_;
  int64_t step_ = 0;
  std::vector<at::Tensor> residuals_;
  at::Tensor sent_, received_;  // bytes: one message per node
  std::function<void()> wait_for_reader_;
};

}  // namespace mpzero::parallel
