#include "parallel/zero/replicated_parameters.hpp"

#include <c10/core/StreamGuard.h>

#include <utility>

namespace mpzero::parallel {
namespace {

int64_t numel_of_all(const std::vector<FlatLayout>& layouts) {
  int64_t sum = 0;
  for (const FlatLayout& layout : layouts) sum += layout.padded_numel();
  return sum;
}

}  // namespace

ReplicatedParameters::ReplicatedParameters(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts,
                                           int rank, Communicator& communicator, const ParameterStoreOptions& options)
    : ParameterStore(units, layouts, rank, communicator, options) {
  // One buffer for all units, since registering one costs time and address space.
  const std::vector<at::Tensor> full =
      split_buffer(communicator.buffer(numel_of_all(layouts), tensor_options_), full_sizes(layouts));
  for (size_t u = 0; u < units.size(); ++u) {
    UnitState& state = states_[u];
    state.full = full[u];
    state.shard = state.full.narrow(0, layouts[u].shard_begin(rank), layouts[u].shard_numel());
    state.views = parameter_views(state.full, units[u]);
  }
}

void ReplicatedParameters::start(size_t unit) {
  UnitState& state = states_[unit];
  if (layouts_[unit].num_shards() == 1) return wait_for_writer(unit);
  // invalidate() has made the copy stream wait for the old parameters' last use.
  c10::OptionalStreamGuard on_copy_stream;
  if (copy_stream_ && state.written == Written::kLater) on_copy_stream.reset_stream(*copy_stream_);
  wait_for_writer(unit);
  follow(state, communicator_.all_gather(state.shard, state.full));
}

std::vector<size_t> ReplicatedParameters::due_after_publishing(size_t unit, Written written) {
  if (layouts_[unit].num_shards() > 1 || written == Written::kLater) return {unit};
  return {};
}

void ReplicatedParameters::drop_gathered() {
  start_all();
  for (UnitState& state : states_) {
    if (state.pending) std::exchange(state.pending, nullptr)->wait();
  }
}

MemoryUse ReplicatedParameters::memory_use(const std::vector<FlatLayout>& layouts,
                                           const ParameterStoreOptions& options) {
  return {.parameters = numel_of_all(layouts) * static_cast<int64_t>(c10::elementSize(options.dtype))};
}

MemoryUse ReplicatedParameters::memory_use() const {
  MemoryUse use;
  for (const UnitState& state : states_) use.parameters += static_cast<int64_t>(state.full.nbytes());
  return use;
}

}  // namespace mpzero::parallel
