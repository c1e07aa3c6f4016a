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

// The destination of a unit's gradients of this micro-batch.
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
    bool overlap = true;       // sum while backward runs; otherwise nothing runs during a sum
    ZeroLimits limits;
    int64_t gradient_accumulation_steps = 1;
    at::Device device = at::kCPU;
    at::ScalarType communication_dtype = at::kFloat;
    at::ScalarType accumulation_dtype = at::kFloat;  // over micro-batches
    Compression compression = {};
  };
  // Where a micro-batch's backward writes gradients.
  static GradientTarget target(const ParallelLayout& ranks, const Options& options);
  // What a store allocates.
  struct Sizes {
    bool partitioned = false;
    at::ScalarType kept_dtype = at::kFloat;
    std::vector<int64_t> kept{};  // elements of each unit: its node shard, or all of it
    // In the communication dtype: number of each length.
    std::map<int64_t, int64_t> buffers{};
    std::map<int64_t, int64_t> inter_node_buffers{};
    int64_t reduce_scatter = 0;  // elements that the node's communicator reserves memory for, if it needs any
  };
  static Sizes sizes(const std::vector<FlatLayout>& layouts, const ParallelLayout& ranks, const Options& options);

  // `shard_index`: of this rank. The layouts have one shard, or as many as there are ranks; those of units without
  // gradients are empty.
  GradientStore(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts, int shard_index,
                const Levels& levels, const Options& options);

  at::ScalarType shard_dtype() const { return sizes_.kept_dtype; }

  // Called for each unit as soon as this rank's shard of its gradient is complete, in that order; work that it queues
  // on the current stream runs after the sum.
  using OnSummed = std::function<void(size_t unit)>;
  void on_summed(OnSummed callback) { on_summed_ = std::move(callback); }

  // Clears the last step's gradients. `step`: for the random rounding of compressed gradients.
  void begin_step(int64_t step = 0);
  void begin_micro_batch(bool last_of_step) { last_micro_batch_ = last_of_step; }
  // Valid until reduce(unit). Repeated calls in one micro-batch return the same. None of a unit without gradients.
  GradientViews gradients(size_t unit);
  // All of this micro-batch's gradients of the unit have been queued: starts their sum over the ranks.
  void reduce(size_t unit);
  // Waits for the step's sums.
  void finish_step();
  // This rank's shard of the summed gradient [shard_numel], after finish_step().
  const at::Tensor& shard(size_t unit) const { return states_[unit].shard; }

  // What compresses gradients between nodes, if they are.
  GradientExchange* exchange() const { return exchange_.get(); }

  // Of the tensors that this store holds.
  MemoryUse memory_use() const;

 private:
  struct UnitState {
    at::Tensor full;  // of this micro-batch (partitioned) or of the step
    std::vector<at::Tensor> views;
    at::Tensor node_shard;  // summed over the node and micro-batches, if partitioned
    at::Tensor shard;       // summed over ranks and micro-batches
    bool empty = true;  // the kept gradient (`node_shard` if partitioned, otherwise `full`) has nothing of this step
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
  // `node_sum`, the unit's node shard, is summed between the nodes once `reduction.pending` has completed.
  void reduce_between_nodes(Reduction& reduction, const at::Tensor& node_sum);
  // The same on the CPU, without compression: `addends` is where what is sent is to be.
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
  std::optional<c10::Stream> inter_node_stream_;  // waits for sums within the node, so that computing need not
  std::unique_ptr<GradientExchange> exchange_;
  int64_t reduce_scatter_bytes_ = 0;
  std::vector<UnitState> states_;
  std::deque<Reduction> under_way_;
};

}  // namespace mpzero::parallel
