#include "parallel/zero/gradient_store.hpp"

#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "parallel/comm_thread/communication_thread.hpp"
#include "parallel/host/part_sum.hpp"
#include "parallel/streams/streams.hpp"
#include "parallel/trace/profile_range.hpp"

namespace mpzero::parallel {
namespace {

// Maximum number of reductions in flight during the backward pass. Each reduction needs a buffer of a full unit. A
// higher limit is no faster, because reductions run one at a time on one stream.
constexpr int64_t kReductionsUnderWay = 3;

// Single-threaded, because the communication thread must not start threads.
void copy_on_one_thread(const at::Tensor& from, const at::Tensor& to) {
  const std::array<const void*, 1> parts{from.const_data_ptr()};
  sum_parts(parts, from.scalar_type(), from.numel(), /*add=*/false, to.data_ptr(), to.scalar_type());
}

// Residuals have the communication dtype.
GradientExchange::Options exchange_options(const GradientStore::Options& options) {
  return {.compression = options.compression, .residual_dtype = options.communication_dtype, .device = options.device};
}

// Returns true if full gradients are in pool buffers until they are summed within the node.
bool partitions(const ParallelLayout& ranks, const GradientStore::Options& options) {
  return options.partitioned && ranks.ranks_per_node > 1;
}

// A single micro-batch needs no accumulation, and a wider dtype would not make the gradient more precise.
at::ScalarType kept_dtype_of(const GradientStore::Options& options) {
  return options.gradient_accumulation_steps > 1 ? options.accumulation_dtype : options.communication_dtype;
}

}  // namespace

GradientTarget GradientStore::target(const ParallelLayout& ranks, const Options& options) {
  if (partitions(ranks, options)) return {.type = options.communication_dtype};
  return {.type = kept_dtype_of(options), .accumulates = options.gradient_accumulation_steps > 1};
}

GradientStore::Sizes GradientStore::sizes(const std::vector<FlatLayout>& layouts, const ParallelLayout& ranks,
                                          const Options& options) {
  const bool sharded = layouts.front().num_shards() > 1;
  Sizes sizes{.partitioned = partitions(ranks, options), .kept_dtype = kept_dtype_of(options)};
  std::map<int64_t, int64_t> units, node_shards, released;
  int64_t largest = 0;
  for (size_t u = 0; u < layouts.size(); ++u) {
    const FlatLayout& layout = layouts[u];
    const bool is_released = !options.released.empty() && options.released[u];
    const int64_t numel = sizes.partitioned ? layout.node_shard_numel() : layout.padded_numel();
    sizes.kept.push_back(is_released ? 0 : numel);
    if (layout.numel() == 0) continue;
    if (is_released) ++released[numel];
    largest = std::max(largest, layout.padded_numel());
    ++units[layout.padded_numel()];
    ++node_shards[layout.node_shard_numel()];
  }
  if (sharded && (ranks.ranks_per_node > 1 || ranks.nodes == 1)) sizes.reduce_scatter = largest;
  const bool converted = sizes.kept_dtype != options.communication_dtype;
  const bool compressed = options.compression.gradient_bits > 0 && ranks.nodes > 1;
  // Maximum number of units of each length that need a buffer at a time: the current unit and the units in a reduction.
  // (take_buffer() waits for sums if two units are current, an embedding and a layer, or if a unit's sum of the last
  // micro-batch is still in flight.)
  const auto under_way = [&](const std::map<int64_t, int64_t>& lengths) {
    std::map<int64_t, int64_t> buffers;
    for (const auto& [numel, count] : lengths) {
      const int64_t fit = std::max<int64_t>(1, options.limits.reduce_bucket_size / numel);
      buffers[numel] = std::min({count, fit + 1, kReductionsUnderWay + 1});
    }
    return buffers;
  };
  // A GradientExchange reads gradients in their own dtype.
  const bool only_exchanged = compressed && ranks.ranks_per_node == 1;
  if (sizes.partitioned || (ranks.ranks() > 1 && converted && !only_exchanged)) sizes.buffers = under_way(units);
  if (sizes.partitioned && ranks.nodes > 1 && converted && !compressed)
    sizes.inter_node_buffers = under_way(node_shards);
  // One more buffer than in use, so that a copy overlaps with the next unit's backward pass.
  if (ranks.ranks() > 1) sizes.released = under_way(released);
  for (const auto& [numel, count] : released) {
    int64_t& buffers = sizes.released[numel];
    buffers = std::min(count, std::max<int64_t>(1, buffers) + 1);
  }
  return sizes;
}

GradientStore::GradientStore(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts,
                             int shard_index, const Levels& levels, const Options& options)
    : units_(units),
      layouts_(layouts),
      levels_(levels),
      shard_index_(shard_index),
      sizes_(sizes(layouts, levels.layout(), options)),
      overlap_(options.overlap),
      reduce_bucket_size_(options.limits.reduce_bucket_size),
      pool_(levels.nearest(), at::TensorOptions().dtype(options.communication_dtype).device(options.device)),
      inter_node_pool_(levels.has_nodes() ? levels.inter_node() : levels.nearest(), pool_.options()),
      released_(options.released),
      released_pool_(levels.nearest(), pool_.options().dtype(sizes_.kept_dtype)) {
  const auto kept = at::TensorOptions().dtype(sizes_.kept_dtype).device(options.device);
  // Use one buffer for all units if collectives read or write it.
  const int64_t total = std::accumulate(sizes_.kept.begin(), sizes_.kept.end(), int64_t{0});
  const bool communicated = sizes_.kept_dtype == options.communication_dtype;
  const std::vector<at::Tensor> buffers =
      split_buffer(communicated ? levels.nearest().buffer(total, kept) : at::zeros({total}, kept), sizes_.kept);
  states_.resize(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    if (has_gradients(u) && !is_released(u)) place(u, buffers[u]);
  }
  for (const auto& [numel, count] : sizes_.released) released_pool_.reserve(numel, count);
  for (const auto& [numel, count] : sizes_.buffers) pool_.reserve(numel, count);
  for (const auto& [numel, count] : sizes_.inter_node_buffers) inter_node_pool_.reserve(numel, count);
  if (sizes_.reduce_scatter > 0) {
    reduce_scatter_bytes_ = levels.intra_node().reserve_reduce_scatter(sizes_.reduce_scatter, pool_.options());
  }
  if (options.compression.gradient_bits > 0 && levels.has_nodes()) {
    exchange_ =
        std::make_unique<GradientExchange>(layouts, shard_index, levels.inter_node(), exchange_options(options));
  }
  if (has_streams(options.device) && levels.has_nodes() && (levels.has_peers() || exchange_)) {
    inter_node_stream_ = new_stream(options.device, /*high_priority=*/true);
  }
}

void GradientStore::place(size_t unit, const at::Tensor& memory) {
  UnitState& state = states_[unit];
  const FlatLayout& layout = layouts_[unit];
  if (sizes_.partitioned) {
    state.node_shard = memory;
    const int64_t begin = layout.shard_begin(shard_index_) - layout.node_shard_begin(shard_index_);
    state.shard = state.node_shard.narrow(0, begin, layout.shard_numel());
  } else {
    state.full = memory;
    state.views = parameter_views(state.full, units_[unit]);
    state.shard = state.full.narrow(0, layout.shard_begin(shard_index_), layout.shard_numel());
  }
}

MemoryUse GradientStore::memory_use() const {
  MemoryUse use = exchange_ ? exchange_->memory_use() : MemoryUse{};
  use.units_in_flight += pool_.bytes() + inter_node_pool_.bytes() + reduce_scatter_bytes_;
  const int64_t kept = std::accumulate(sizes_.kept.begin(), sizes_.kept.end(), int64_t{0});
  use.gradients += kept * static_cast<int64_t>(c10::elementSize(sizes_.kept_dtype)) + released_pool_.bytes();
  return use;
}

void GradientStore::begin_step(int64_t step) {
  if (exchange_) exchange_->begin_step(step);
  for (UnitState& state : states_) state.empty = true;
}

GradientViews GradientStore::gradients(size_t unit) {
  if (!has_gradients(unit)) return {};
  UnitState& state = states_[unit];
  if (!state.full.defined()) {
    const FlatLayout& layout = layouts_[unit];
    if (sizes_.partitioned) {
      state.full = take_buffer(pool_, layout.padded_numel());
      state.views = parameter_views(state.full, units_[unit]);
    } else {
      place(unit, take_released(layout.padded_numel()));
    }
    // Other units may have overwritten the padding.
    state.full.narrow(0, layout.numel(), layout.padded_numel() - layout.numel()).zero_();
  }
  return {state.views, !sizes_.partitioned && !state.empty};
}

at::Tensor GradientStore::take_buffer(BufferPool& pool, int64_t numel) {
  while (!pool.has_free(numel) && !under_way_.empty()) complete_oldest();
  return pool.take(numel);
}

at::Tensor GradientStore::take_released(int64_t numel) {
  while (!released_pool_.has_free(numel) && !reuse_leaving(numel) && !under_way_.empty()) complete_oldest();
  return released_pool_.take(numel);
}

bool GradientStore::reuse_leaving(int64_t numel) {
  const auto oldest = std::find_if(leaving_.begin(), leaving_.end(),
                                   [&](const auto& buffer) { return buffer.second.numel() == numel; });
  if (oldest == leaving_.end()) return false;
  if (before_reuse_) before_reuse_(oldest->first);
  released_pool_.put_back(std::move(oldest->second));
  leaving_.erase(oldest);
  return true;
}

void GradientStore::summed(size_t unit) {
  if (on_summed_) on_summed_(unit);
  if (!is_released(unit)) return;
  UnitState& state = states_[unit];
  leaving_.emplace_back(unit, std::move(sizes_.partitioned ? state.node_shard : state.full));
  state = {};
}

void GradientStore::reduce(size_t unit) {
  if (!has_gradients(unit)) return;
  const ProfileRange range("reduce", units_[unit].name);
  sizes_.partitioned ? reduce_partitioned(unit) : reduce_full(unit);
}

void GradientStore::reduce_partitioned(size_t unit) {
  UnitState& state = states_[unit];
  if (!state.node_shard.defined()) place(unit, take_released(layouts_[unit].node_shard_numel()));
  Reduction reduction{.unit = unit,
                      .last_of_step = last_micro_batch_,
                      .addends = std::exchange(state.full, at::Tensor()),
                      .inter_node_addends = {},
                      .pending = {}};
  state.views.clear();
  const SumMode mode = std::exchange(state.empty, false) ? SumMode::kOverwrite : SumMode::kAdd;
  reduction.pending = levels_.intra_node().reduce_scatter_sum(reduction.addends, state.node_shard, mode);
  if (last_micro_batch_ && levels_.has_nodes()) reduce_between_nodes(reduction, state.node_shard);
  follow(std::move(reduction));
}

void GradientStore::reduce_between_nodes(Reduction& reduction, const at::Tensor& node_sum) {
  at::Tensor addends = node_sum;
  if (!exchange_ && node_sum.dtype() != pool_.options().dtype()) {
    reduction.inter_node_addends = take_buffer(inter_node_pool_, node_sum.numel());
    addends = reduction.inter_node_addends;
  }
  const auto start = [&] {
    if (reduction.pending) reduction.pending->wait();
    if (exchange_) {
      reduction.pending = exchange_->sum(reduction.unit, node_sum, states_[reduction.unit].shard);
      return;
    }
    if (!addends.is_same(node_sum)) addends.copy_(node_sum);
    reduction.pending = levels_.inter_node().reduce_scatter_sum(addends, states_[reduction.unit].shard);
  };
  if (!has_streams(node_sum.device()) && !exchange_) return reduce_between_hosts(reduction, node_sum, addends);
  if (!inter_node_stream_) return start();
  // Wait until the last use of the buffer is done.
  follow_current_stream(*inter_node_stream_);
  const c10::StreamGuard on_own_stream(*inter_node_stream_);
  start();
}

void GradientStore::reduce_between_hosts(Reduction& reduction, const at::Tensor& node_sum, const at::Tensor& addends) {
  HostOrder in_order;
  if (reduction.pending) reduction.pending->wait();
  if (!addends.is_same(node_sum)) in_order.run([node_sum, addends] { copy_on_one_thread(node_sum, addends); });
  reduction.pending = levels_.inter_node().reduce_scatter_sum(addends, states_[reduction.unit].shard);
}

void GradientStore::reduce_full(size_t unit) {
  UnitState& state = states_[unit];
  state.empty = false;
  if (!last_micro_batch_) return;
  if (levels_.layout().ranks() == 1) {
    summed(unit);
    return;
  }
  const FlatLayout& layout = layouts_[unit];
  Reduction reduction{.unit = unit, .addends = state.full, .pooled = false, .inter_node_addends = {}, .pending = {}};
  const bool only_exchanged = exchange_ && !levels_.has_peers();
  if (pool_.options().dtype() != state.full.dtype() && !only_exchanged) {
    reduction.addends = take_buffer(pool_, layout.padded_numel());
    reduction.addends.copy_(state.full);
    reduction.pooled = true;
  }
  if (layout.num_shards() == 1) {
    reduction.pending = levels_.intra_node().all_reduce_sum(reduction.addends);
  } else if (!levels_.has_nodes()) {
    reduction.pending = levels_.intra_node().reduce_scatter_sum(reduction.addends, state.shard);
  } else {
    const at::Tensor node_sum =
        reduction.addends.narrow(0, layout.node_shard_begin(shard_index_), layout.node_shard_numel());
    if (levels_.has_peers()) {
      reduction.pending = levels_.intra_node().reduce_scatter_sum(reduction.addends, node_sum);
    }
    reduce_between_nodes(reduction, node_sum);
  }
  follow(std::move(reduction));
}

void GradientStore::follow(Reduction reduction) {
  under_way_.push_back(std::move(reduction));
  while (too_many_under_way()) complete_oldest();
}

bool GradientStore::too_many_under_way() const {
  if (under_way_.empty()) return false;
  if (!overlap_ || static_cast<int64_t>(under_way_.size()) > kReductionsUnderWay) return true;
  int64_t elements = 0;
  for (const Reduction& reduction : under_way_) elements += reduction.addends.numel();
  return under_way_.size() > 1 && elements > reduce_bucket_size_;
}

void GradientStore::complete_oldest() {
  Reduction reduction = std::move(under_way_.front());
  under_way_.pop_front();
  const ProfileRange range("take gradient", units_[reduction.unit].name);
  reduction.pending->wait();
  if (reduction.pooled && layouts_[reduction.unit].num_shards() == 1) {
    states_[reduction.unit].shard.copy_(reduction.addends);
  }
  if (reduction.pooled) pool_.put_back(std::move(reduction.addends));
  if (reduction.inter_node_addends.defined()) inter_node_pool_.put_back(std::move(reduction.inter_node_addends));
  if (reduction.last_of_step) summed(reduction.unit);
}

void GradientStore::finish_step() {
  while (!under_way_.empty()) complete_oldest();
}

}  // namespace mpzero::parallel
