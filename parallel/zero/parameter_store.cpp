#include "parallel/zero/parameter_store.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "parallel/streams/streams.hpp"
#include "parallel/trace/profile_range.hpp"
#include "parallel/zero/replicated_parameters.hpp"
#include "parallel/zero/sharded_parameters.hpp"

namespace mpzero::parallel {
namespace {

// Returns true if a store with these options gathers units on demand. A rank without peers keeps full units.
bool gathers_on_demand(const std::vector<FlatLayout>& layouts, const ParallelLayout& ranks,
                       const ParameterStoreOptions& options) {
  return is_offloaded(options) || (options.sharded && layouts.front().num_shards() > 1 && ranks.ranks_per_node > 1);
}

}  // namespace

ParameterStore::ParameterStore(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts,
                               int shard_index, const Levels& levels, const ParameterStoreOptions& options)
    : units_(units),
      layouts_(layouts),
      levels_(levels),
      shard_index_(shard_index),
      tensor_options_(at::TensorOptions().dtype(options.dtype).device(options.device)),
      states_(units.size()),
      overlap_(options.overlap),
      codes_(options.codes) {
  int64_t largest = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    if (units[u].coded) largest = std::max(largest, layout_of(units[u], layouts[u].num_shards()).padded_numel());
  }
  if (largest > 0) decoded_ = at::empty({largest}, tensor_options_);
  if (!options.compressed || !levels.has_nodes()) return;
  exchange_ = std::make_unique<ParameterExchange>(layouts, shard_index, levels.inter_node(), tensor_options_);
}

void ParameterStore::start_next(const std::vector<Due>& steps) {
  for (const Due& step : steps) {
    UnitState& state = states_[step.unit];
    if (step.between_nodes && state.written == Written::kLater) {
      state.node_shard_is_held = true;
      continue;
    }
    if (!step.between_nodes) {
      state.due = true;
      let_go(step.unit);
    }
    due_.push_back(step);
  }
  start_certain();
}

void ParameterStore::let_go(size_t unit) {
  if (std::exchange(states_[unit].node_shard_is_held, false)) due_.push_back({.unit = unit, .between_nodes = true});
}

void ParameterStore::start_certain() {
  while (!due_.empty() && states_[due_.front().unit].written == Written::kNow) start_oldest();
}

void ParameterStore::start_written() {
  while (!due_.empty()) {
    const size_t unit = due_.front().unit;
    if (states_[unit].written == Written::kLater && !writer_->written(unit)) return;
    start_oldest();
  }
}

void ParameterStore::start_until(size_t unit) {
  while (states_[unit].due) start_oldest();
}

void ParameterStore::start_all() {
  for (size_t unit = 0; unit < states_.size(); ++unit) let_go(unit);
  while (!due_.empty()) start_oldest();
}

void ParameterStore::start_oldest() {
  const auto [unit, between_nodes] = due_.front();
  const ProfileRange range(between_nodes ? "gather between nodes" : "gather", units_[unit].name);
  if (between_nodes) {
    start_between_nodes(unit);
  } else {
    start(unit);
    states_[unit].due = false;
  }
  states_[unit].written = Written::kNow;
  due_.pop_front();
}

MemoryUse ParameterStore::common_memory() const {
  MemoryUse use = exchange_ ? exchange_->memory_use() : MemoryUse{};
  if (decoded_.defined()) use.units_in_flight += static_cast<int64_t>(decoded_.nbytes());
  return use;
}

std::vector<at::Tensor> ParameterStore::views_of(size_t unit) const {
  return parameter_views(units_[unit].coded ? decoded_ : states_[unit].full, units_[unit]);
}

void ParameterStore::decode(size_t unit) {
  const int shards = layouts_[unit].num_shards();
  const int64_t count = layout_of(units_[unit], shards).shard_numel();
  const at::Tensor rows = states_[unit].full.view(at::kByte).view({shards, -1});
  for (int shard = 0; shard < shards; ++shard) {
    decode_weights(codes_, rows[shard].narrow(0, 0, code_bytes(codes_, count)),
                   decoded_.narrow(0, shard * count, count));
  }
}

std::unique_ptr<PendingCollective> ParameterStore::gather_between_nodes(size_t unit) {
  UnitState& state = states_[unit];
  if (exchange_) return exchange_->gather(unit, state.node_shard);
  return levels_.inter_node().all_gather(state.shard, state.node_shard);
}

at::Tensor ParameterStore::common_shard(size_t unit) {
  start_all();
  UnitState& state = states_[unit];
  if (state.pending_node_shard) state.pending_node_shard->wait();
  if (state.pending) state.pending->wait();
  return exchange_->own(unit, state.node_shard);
}

void ParameterStore::set_common_shard(size_t unit, const at::Tensor& values) {
  exchange_->own(unit, states_[unit].node_shard).copy_(values);
  exchange_->begin_with_own(unit);
}

void ParameterStore::wait_for_writer(size_t unit) {
  if (states_[unit].written == Written::kLater) writer_->wait(unit);
}

void ParameterStore::follow(UnitState& state, std::unique_ptr<PendingCollective> pending) {
  if (overlap_) {
    state.pending = std::move(pending);
  } else {
    pending->wait();
  }
}

void ParameterStore::follow_between_nodes(UnitState& state, std::unique_ptr<PendingCollective> pending) {
  if (overlap_) {
    state.pending_node_shard = std::move(pending);
  } else {
    pending->wait();
  }
}

std::span<const at::Tensor> ParameterStore::gather(size_t unit) {
  about_to_use(unit);
  UnitState& state = states_[unit];
  if (state.due) {
    const bool measured = timeline_ != nullptr && timeline_->running();
    const Timeline::Mark begin = measured ? timeline_->mark() : 0;
    start_until(unit);
    if (measured) stalls_.push_back({begin, timeline_->mark()});
  }
  start_written();
  if (state.pending) {
    state.pending->wait();
    state.pending.reset();
  }
  if (units_[unit].coded) decode(unit);
  return state.views;
}

void ParameterStore::invalidate() {
  drop_gathered();
  if (copy_stream_) follow_current_stream(*copy_stream_);
}

void ParameterStore::publish(size_t unit, Written written) {
  states_[unit].written = written;
  ++states_[unit].published;
  start_next(due_after_publishing(unit, written));
}

void ParameterStore::set_writer(ShardWriter& writer) {
  writer_ = &writer;
  const at::Device device = tensor_options_.device();
  if (has_streams(device) && !copy_stream_) copy_stream_ = new_stream(device);
}

std::unique_ptr<ParameterStore> make_parameter_store(const std::vector<UnitSpec>& units,
                                                     const std::vector<FlatLayout>& layouts, int shard_index,
                                                     const Levels& levels, const ParameterStoreOptions& options) {
  if (gathers_on_demand(layouts, levels.layout(), options)) {
    return std::make_unique<ShardedParameters>(units, layouts, shard_index, levels, options);
  }
  return std::make_unique<ReplicatedParameters>(units, layouts, shard_index, levels, options);
}

std::vector<bool> units_in_codes(const std::vector<FlatLayout>& layouts, const ParallelLayout& ranks,
                                 const ParameterStoreOptions& options) {
  std::vector<bool> in_codes(layouts.size(), false);
  if (!gathers_on_demand(layouts, ranks, options)) return in_codes;
  const std::vector<CodedLayout> coded = coded_layouts(layouts, ranks, options);
  for (size_t u = 0; u < layouts.size(); ++u) in_codes[u] = coded[u].saves();
  return in_codes;
}

}  // namespace mpzero::parallel
