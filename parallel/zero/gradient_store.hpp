#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "parallel/host/memory_use.hpp"
#include "parallel/zero/buffer_pool.hpp"
#include "parallel/zero/exchange.hpp"
#include "parallel/zero/flat_unit.hpp"
#include "parallel/zero/levels.hpp"
#include "parallel/zero/zero_limits.hpp"

namespace mpzero::parallel {

// The destination of a unit's gradients in a micro-batch.
struct GradientViews {
  std::span<const at::Tensor> views;  // in the order and shapes of the unit's parameters
  bool accumulate = false;            // add to the existing content (earlier micro-batches) instead of overwriting it
};

struct GradientTarget {
  at::ScalarType type = at::kFloat;
  bool accumulates = false;  // contains the gradients of the step's earlier micro-batches
};

// The units' gradients: accumulated in fp32 by default, summed over the ranks in the communication dtype. ZeRO 0 and 1
// keep full gradients and sum once per step; ZeRO 2 and 3 keep this rank's node shard and sum over the node at every
// micro-batch. Between nodes gradients are summed once per step, after the sum within the node, by a GradientExchange
// if they are compressed. A rank without peers in its node accumulates full gradients at every stage.
//
//   gradients() -> reduce(): [within the node] -> accumulated -> [last micro-batch: between nodes] -> on_summed()
class GradientStore {
 public:
  struct Options {
    bool partitioned = false;  // ZeRO 2 and 3
    bool overlap = true;       // sums overlap with backward; otherwise compute waits for them
    ZeroLimits limits;
    int64_t gradient_accumulation_steps = 1;
    at::Device device = at::kCPU;
    at::ScalarType communication_dtype = at::kFloat;
    at::ScalarType accumulation_dtype = at::kFloat;  // over micro-batches
    Compression compression = {};
  };
  // The gradients that a micro-batch's backward writes.
  static GradientTarget target(const ParallelLayout& ranks, const Options& options);
  // The allocations of a store.
  struct Sizes {
    bool partitioned = false;
    at::ScalarType kept_dtype = at::kFloat;
    std::vector<int64_t> kept{};  // elements of each unit: its node shard, or the full unit
    // Number of buffers of each length, in the communication dtype.
    std::map<int64_t, int64_t> buffers{};
    std::map<int64_t, int64_t> inter_node_buffers{};
    int64_t reduce_scatter = 0;  // elements that the node's communicator reserves memory for, if it needs any
  };
  static Sizes sizes(const std::vector<FlatLayout>& layouts, const ParallelLayout& ranks, const Options& options);

  // `shard_index`: this rank's. The layouts have one shard, or one per rank; layouts of units without gradients are
  // empty.
  GradientStore(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts, int shard_index,
                const Levels& levels, const Options& options);

  at::ScalarType shard_dtype() const { return sizes_.kept_dtype; }

  // Called for each unit once this rank's shard of its gradient is complete, in order of completion; work that it
  // queues on the current stream runs after the sum.
  using OnSummed = std::function<void(size_t unit)>;
  void on_summed(OnSummed callback) { on_summed_ = std::move(callback); }

  // Clears the last step's gradients. `step`: for the stochastic rounding of compressed gradients.
  void begin_step(int64_t step = 0);
  void begin_micro_batch(bool last_of_step) { last_micro_batch_ = last_of_step; }
  // Valid until reduce(unit). Repeated calls in one micro-batch return the same views. Empty for a unit without
  // gradients.
  GradientViews gradients(size_t unit);
  // Starts the sum of the unit's gradients over the ranks. Call once all work on them in this micro-batch has been
  // queued.
  void reduce(size_t unit);
  // Waits for the step's sums.
  void finish_step();
  // This rank's shard of the summed gradient [shard_numel], after finish_step().
  const at::Tensor& shard(size_t unit) const { return states_[unit].shard; }

  // Compresses gradients between nodes; null without compression.
  GradientExchange* exchange() const { return exchange_.get(); }

  // Memory of this store's tensors.
  MemoryUse memory_use() const;

 private:
  struct UnitState {
    at::Tensor full;  // of this micro-batch (partitioned) or of the step
    std::vector<at::Tensor> views;
    at::Tensor node_shard;  // summed over the node and micro-batches, if partitioned
    at::Tensor shard;       // summed over ranks and micro-batches
    bool empty = true;      // `node_shard` if partitioned, otherwise `full`, contains no gradients of this step
  };
  struct Reduction {
    size_t unit = 0;
    bool last_of_step = true;
    at::Tensor addends;             // in the communication dtype
    bool pooled = true;             // the addends are a buffer of the pool, not the unit's own
    at::Tensor inter_node_addends;  // a buffer of inter_node_pool_, or undefined
    std::unique_ptr<PendingCollective> pending;
  };

  void reduce_partitioned(size_t unit);
  void reduce_full(size_t unit);
  // Sums `node_sum`, the unit's node shard, between the nodes once `reduction.pending` has completed.
  void reduce_between_nodes(Reduction& reduction, const at::Tensor& node_sum);
  // The same on the CPU, without compression: sends `addends`, to which it copies `node_sum` if it differs.
  void reduce_between_hosts(Reduction& reduction, const at::Tensor& node_sum, const at::Tensor& addends);
  // Registers a started reduction, and completes the oldest ones above the limit.
  void follow(Reduction reduction);
  void complete_oldest();
  // A free buffer [numel]; completes reductions until there is one.
  at::Tensor take_buffer(BufferPool& pool, int64_t numel);
  bool too_many_under_way() const;
  bool has_gradients(size_t unit) const { return layouts_[unit].numel() > 0; }

  const std::vector<UnitSpec>& units_;
  const std::vector<FlatLayout>& layouts_;
  Levels levels_;
  int shard_index_;
  Sizes sizes_;
  bool overlap_;
  int64_t reduce_bucket_size_;
  bool last_micro_batch_ = true;
  OnSummed on_summed_;
  BufferPool pool_;  // in the communication dtype
  BufferPool inter_node_pool_;
  std::optional<c10::Stream> inter_node_stream_;  // waits for sums within the node, so that compute need not
  std::unique_ptr<GradientExchange> exchange_;
  int64_t reduce_scatter_bytes_ = 0;
  std::vector<UnitState> states_;
  std::deque<Reduction> under_way_;
};

}  // namespace mpzero::parallel
