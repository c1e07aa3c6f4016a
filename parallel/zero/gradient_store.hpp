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
#include <utility>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "parallel/host/memory_use.hpp"
#include "parallel/zero/buffer_pool.hpp"
#include "parallel/zero/exchange.hpp"
#include "parallel/zero/flat_unit.hpp"
#include "parallel/zero/levels.hpp"
#include "parallel/zero/zero_limits.hpp"

namespace mpzero::parallel {

// Destination of a unit's gradients in a micro-batch.
struct GradientViews {
  std::span<const at::Tensor> views;  // ordered and shaped like the unit's parameters
  bool accumulate = false;            // add to the existing content (earlier micro-batches) instead of overwriting it
};

struct GradientTarget {
  at::ScalarType type = at::kFloat;
  bool accumulates = false;  // true if gradients are summed over the step's micro-batches
};

// Gradients of the units, accumulated in fp32 by default and summed over the ranks in the communication dtype. ZeRO 0
// and 1 keep full gradients and sum them once per step. ZeRO 2 and 3 keep this rank's node shard and sum gradients
// within the node in every micro-batch. Gradients are summed across nodes once per step, after the sum within the node.
// A GradientExchange sums compressed gradients. At every stage, a rank without peers in its node accumulates full
// gradients.
//
//   gradients() -> reduce(): [within the node] -> accumulated -> [last micro-batch: between nodes] -> on_summed()
//
// Released units do not keep their gradient until the end of the step. Released units share a few buffers, whose
// contents the callback of on_summed() copies elsewhere. States of a released unit's buffer:
//
//   in       | event                                              | then
//   ---------+----------------------------------------------------+----------------------------------------------------
//   kNone    | gradients() or, if partitioned, reduce()           | acquires a free buffer or, if all are in use, one
//            |                                                    |   that is being copied: kInUse. If there is
//            neither, |                                                    |   first completes reductions
//   kInUse   | its last reduction is complete                     | on_summed(), which starts a copy: kLeaving
//   kLeaving | another unit acquires this buffer, the oldest of   | before_reuse(): the current stream waits for the
//            |   its length that is being copied                  |   copy: kNone
class GradientStore {
 public:
  struct Options {
    bool partitioned = false;  // ZeRO 2 and 3
    bool overlap = true;       // sums overlap with backward; otherwise compute waits for them
    ZeroLimits limits;
    int64_t gradient_accumulation_steps = 1;
    std::vector<bool> released = {};  // one per unit; empty: none. Requires gradient_accumulation_steps = 1
    at::Device device = at::kCPU;
    at::ScalarType communication_dtype = at::kFloat;
    at::ScalarType accumulation_dtype = at::kFloat;  // over micro-batches
    Compression compression = {};
  };
  // Returns the dtype of the backward pass's gradients, and whether they accumulate over micro-batches.
  static GradientTarget target(const ParallelLayout& ranks, const Options& options);
  struct Sizes {
    bool partitioned = false;
    at::ScalarType kept_dtype = at::kFloat;
    std::vector<int64_t> kept{};            // elements per unit: the node shard or the full unit; 0 for released units
    std::map<int64_t, int64_t> released{};  // number of buffers of each length that released units share
    // Number of buffers of each length, in the communication dtype.
    std::map<int64_t, int64_t> buffers{};
    std::map<int64_t, int64_t> inter_node_buffers{};
    int64_t reduce_scatter = 0;  // elements for reserve_reduce_scatter() of the node's communicator
  };
  static Sizes sizes(const std::vector<FlatLayout>& layouts, const ParallelLayout& ranks, const Options& options);

  // `shard_index`: index of this rank's shard. The layouts have one shard, or one shard per rank. Layouts of units
  // without gradients are empty.
  GradientStore(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts, int shard_index,
                const Levels& levels, const Options& options);

  at::ScalarType shard_dtype() const { return sizes_.kept_dtype; }

  // Callback for each unit whose gradient shard on this rank is complete, in order of completion. Work that the
  // callback queues on the current stream runs after the sum.
  using OnSummed = std::function<void(size_t unit)>;
  // `before_reuse`: called before work that overwrites a released unit's gradient is queued on the current stream.
  void on_summed(OnSummed callback, OnSummed before_reuse = {}) {
    on_summed_ = std::move(callback);
    before_reuse_ = std::move(before_reuse);
  }

  // Clears the gradients of the last step. `step` selects the random numbers for stochastic rounding of compressed
  // gradients.
  void begin_step(int64_t step = 0);
  void begin_micro_batch(bool last_of_step) { last_micro_batch_ = last_of_step; }
  // Returns views that are valid until reduce(unit). Repeated calls in one micro-batch return the same views. Returns
  // empty views for a unit without gradients.
  GradientViews gradients(size_t unit);
  // Starts the reduction of the unit's gradients across ranks. Must be called after all work on the gradients in this
  // micro-batch is queued.
  void reduce(size_t unit);
  // Waits until all gradient sums of the step are complete.
  void finish_step();
  // Returns this rank's shard [shard_numel] of the unit's summed gradient, which is complete after finish_step(). For
  // released units, the shard is defined only during on_summed().
  const at::Tensor& shard(size_t unit) const { return states_[unit].shard; }

  // Returns the compressed exchange between nodes, or null without compression.
  GradientExchange* exchange() const { return exchange_.get(); }

  MemoryUse memory_use() const;

 private:
  struct UnitState {
    at::Tensor full;  // gradients of this micro-batch (partitioned) or of the step
    std::vector<at::Tensor> views;
    at::Tensor node_shard;  // summed over the node and micro-batches, if partitioned
    at::Tensor shard;       // summed over ranks and micro-batches
    bool empty = true;      // `node_shard` (partitioned) or `full` does not contain gradients of this step
  };
  struct Reduction {
    size_t unit = 0;
    bool last_of_step = true;
    at::Tensor addends;             // communication dtype
    bool pooled = true;             // `addends` is a buffer of the pool, not the unit's own tensor
    at::Tensor inter_node_addends;  // a buffer of inter_node_pool_, or undefined
    std::unique_ptr<PendingCollective> pending;
  };

  void reduce_partitioned(size_t unit);
  void reduce_full(size_t unit);
  // Sums `node_sum`, the unit's node shard, across nodes after `reduction.pending` has completed.
  void reduce_between_nodes(Reduction& reduction, const at::Tensor& node_sum);
  // Version of reduce_between_nodes() for the CPU without compression. Copies `node_sum` to `addends` if the tensors
  // differ, then sends `addends`.
  void reduce_between_hosts(Reduction& reduction, const at::Tensor& node_sum, const at::Tensor& addends);
  // Registers a reduction that has started. If too many reductions are in flight, completes the oldest ones.
  void follow(Reduction reduction);
  void complete_oldest();
  // Returns a free buffer [numel] of `pool`. Completes reductions until a buffer is free.
  at::Tensor take_buffer(BufferPool& pool, int64_t numel);
  // Returns a free buffer [numel] for a released unit's gradient. Completes reductions until a buffer is free.
  at::Tensor take_released(int64_t numel);
  // Makes the oldest buffer [numel] that is being copied available for reuse. Returns false if no buffer of this length
  // is being copied.
  bool reuse_leaving(int64_t numel);
  // Uses `memory` for the unit's node shard (if partitioned) or full gradient.
  void place(size_t unit, const at::Tensor& memory);
  bool is_released(size_t unit) const { return !released_.empty() && released_[unit]; }
  // Called when this rank's shard of the unit's gradient is complete.
  void summed(size_t unit);
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
  OnSummed on_summed_, before_reuse_;
  BufferPool pool_;  // communication dtype
  BufferPool inter_node_pool_;
  std::vector<bool> released_;
  BufferPool released_pool_;
  // Buffers of released units that are being copied, with the units, oldest first.
  std::deque<std::pair<size_t, at::Tensor>> leaving_;
  std::optional<c10::Stream> inter_node_stream_;  // waits for sums within the node, so that the compute stream need not
  std::unique_ptr<GradientExchange> exchange_;
  int64_t reduce_scatter_bytes_ = 0;
  std::vector<UnitState> states_;
  std::deque<Reduction> under_way_;
};

}  // namespace mpzero::parallel
