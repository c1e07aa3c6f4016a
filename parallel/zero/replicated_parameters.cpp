#include "parallel/zero/replicated_parameters.hpp"

#include <c10/core/StreamGuard.h>

#include <optional>
#include <utility>

#include "parallel/comm_thread/communication_thread.hpp"
#include "parallel/streams/streams.hpp"

namespace mpzero::parallel {
namespace {

int64_t numel_of_all(const std::vector<FlatLayout>& layouts) {
  int64_t sum = 0;
  for (const FlatLayout& layout : layouts) sum += layout.padded_numel();
  return sum;
}

}  // namespace

ReplicatedParameters::ReplicatedParameters(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts,
                                           int shard_index, const Levels& levels, const ParameterStoreOptions& options)
    : ParameterStore(units, layouts, shard_index, levels, options) {
  if (has_streams(options.device) && levels.has_nodes() && (levels.has_peers() || exchange_)) {
    copy_stream_ = new_stream(options.device);
  }
  // Use one buffer for all units, because each registration costs time and address space.
  const std::vector<at::Tensor> full =
      split_buffer(levels.nearest().buffer(numel_of_all(layouts), tensor_options_), full_sizes(layouts));
  for (size_t u = 0; u < units.size(); ++u) {
    UnitState& state = states_[u];
    state.full = full[u];
    state.shard = exchange_ ? exchange_->wanted(u)
                            : state.full.narrow(0, layouts[u].shard_begin(shard_index), layouts[u].shard_numel());
    state.node_shard = state.full.narrow(0, layouts[u].node_shard_begin(shard_index), layouts[u].node_shard_numel());
    state.views = views_of(u);
  }
}

void ReplicatedParameters::start(size_t unit) {
  UnitState& state = states_[unit];
  if (layouts_[unit].num_shards() == 1) return wait_for_writer(unit);
  const bool two_levels = levels_.has_nodes() && levels_.has_peers();
  std::unique_ptr<PendingCollective> gathered;
  {
    c10::OptionalStreamGuard on_copy_stream;
    std::optional<HostOrder> in_order;
    if (copy_stream_ && (two_levels || exchange_ || state.written == Written::kLater)) {
      // If the shard is written later, invalidate() has made the stream wait for the last use of the old parameters.
      if (state.written == Written::kNow) follow_current_stream(*copy_stream_);
      on_copy_stream.reset_stream(*copy_stream_);
    }
    wait_for_writer(unit);
    if (levels_.has_nodes()) gathered = gather_between_nodes(unit);
    if (two_levels && !exchange_ && !has_streams(tensor_options_.device())) in_order.emplace();
    if (two_levels) gathered->wait();
    if (levels_.has_peers()) gathered = levels_.intra_node().all_gather(state.node_shard, state.full);
  }
  follow(state, std::move(gathered));
}

std::vector<ParameterStore::Due> ReplicatedParameters::due_after_publishing(size_t unit, Written written) {
  if (layouts_[unit].num_shards() > 1 || written == Written::kLater) return {{.unit = unit}};
  return {};
}

void ReplicatedParameters::drop_gathered() {
  start_all();
  for (UnitState& state : states_) {
    if (state.pending) std::exchange(state.pending, nullptr)->wait();
  }
}

MemoryUse ReplicatedParameters::memory_use() const {
  MemoryUse use = common_memory();
  for (const UnitState& state : states_) use.parameters += static_cast<int64_t>(state.full.nbytes());
  return use;
}

}  // namespace mpzero::parallel
