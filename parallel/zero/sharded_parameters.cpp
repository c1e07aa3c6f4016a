#include "parallel/zero/sharded_parameters.hpp"

#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "parallel/comm_thread/communication_thread.hpp"
#include "parallel/host/host_memory.hpp"
#include "parallel/streams/streams.hpp"
#include "parallel/zero/exchange.hpp"

namespace mpzero::parallel {
namespace {

// A copy that is queued on `stream`.
class PendingCopy final : public PendingCollective {
 public:
  explicit PendingCopy(const c10::Stream& stream) : done_(stream.device_type()), device_(stream.device()) {
    done_.record(stream);
  }
  void wait() override { done_.block(current_stream(device_)); }

 private:
  c10::Event done_;
  at::Device device_;
};

std::vector<int64_t> node_shard_sizes(const std::vector<FlatLayout>& layouts) {
  std::vector<int64_t> sizes;
  for (const FlatLayout& layout : layouts) sizes.push_back(layout.node_shard_numel());
  return sizes;
}

// Returns the size of inter_node_staging_, in elements.
int64_t staging_size(const std::vector<FlatLayout>& layouts, const ParallelLayout& ranks,
                     const ParameterStoreOptions& options) {
  if (!is_offloaded(options) || ranks.nodes == 1) return 0;
  const std::vector<int64_t> sizes = node_shard_sizes(layouts);
  return *std::max_element(sizes.begin(), sizes.end());
}

std::vector<at::Tensor> host_shards(const std::vector<int64_t>& sizes, const ParameterStoreOptions& options) {
  if (options.device.type() != kSimulatedDevice) return host_tensors(sizes, options.dtype, options.pinned);
  std::vector<at::Tensor> shards;
  for (const int64_t size : sizes) shards.push_back(host_tensor_without_memory(size, options.dtype));
  return shards;
}

// Returns the size of each unit's gather buffer, in elements.
std::vector<int64_t> buffer_sizes(const std::vector<FlatLayout>& layouts, const ParallelLayout& ranks,
                                  const ParameterStoreOptions& options) {
  std::vector<int64_t> sizes = full_sizes(layouts);
  const std::vector<CodedLayout> coded = coded_layouts(layouts, ranks, options);
  for (size_t u = 0; u < sizes.size(); ++u) {
    if (coded[u].saves()) sizes[u] = coded[u].buffer_numel();
  }
  return sizes;
}

int64_t sum(const std::vector<int64_t>& sizes) {
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  return total;
}

}  // namespace

bool is_offloaded(const ParameterStoreOptions& options) {
  return options.placement == Placement::kHost && has_streams(options.device);
}

std::vector<CodedLayout> coded_layouts(const std::vector<FlatLayout>& layouts, const ParallelLayout& ranks,
                                       const ParameterStoreOptions& options) {
  std::vector<CodedLayout> coded(layouts.size());
  if (!options.codec || options.placement == Placement::kHost) return coded;
  if (options.dtype != at::kBFloat16) throw_failure("quantized gathers require bf16 parameters");
  for (size_t u = 0; u < layouts.size(); ++u) {
    coded[u] =
        CodedLayout(layouts[u].numel(), layouts[u].node_shard_numel(), ranks.ranks_per_node, options.codec->ranges(u));
  }
  return coded;
}

ShardedParameters::ShardedParameters(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts,
                                     int shard_index, const Levels& levels, const ParameterStoreOptions& options)
    : ParameterStore(units, layouts, shard_index, levels, options),
      offloaded_(is_offloaded(options)),
      buffer_sizes_(buffer_sizes(layouts, levels.layout(), options)),
      pool_(levels.nearest(), tensor_options_),
      schedule_(buffer_sizes_, options.limits) {
  if (offloaded_ && exchange_) throw_failure("parameters in host memory cannot be compressed between shard groups");
  const std::vector<int64_t> sizes = node_shard_sizes(layouts);
  if (std::vector<CodedLayout> coded = coded_layouts(layouts, levels.layout(), options);
      std::any_of(coded.begin(), coded.end(), [](const CodedLayout& unit) { return unit.saves(); })) {
    codes_.emplace(std::move(coded), options.codec, levels.intra_node(), options.device);
  }
  if (has_streams(options.device) && (offloaded_ || codes_ || levels.has_nodes())) {
    copy_stream_ = new_stream(options.device);
  }
  if (const int64_t staging = staging_size(layouts, levels.layout(), options); staging > 0) {
    inter_node_staging_ = levels.inter_node().buffer(staging, tensor_options_);
  }
  if (has_streams(options.device) && levels.has_nodes()) inter_node_stream_ = new_stream(options.device);
  // On the device, use one buffer for all units, because each registration costs time and address space.
  const std::vector<at::Tensor> node_shards =
      offloaded_ ? host_shards(sizes, options)
                 : split_buffer(levels.nearest().buffer(sum(sizes), tensor_options_), sizes);
  for (size_t u = 0; u < units.size(); ++u) place(u, node_shards[u]);
}

void ShardedParameters::place(size_t unit, const at::Tensor& node_shard) {
  const FlatLayout& layout = layouts_[unit];
  states_[unit].node_shard = node_shard;
  if (exchange_) {
    states_[unit].shard = exchange_->wanted(unit);
    return;
  }
  states_[unit].shard = node_shard.narrow(0, layout.shard_begin(shard_index_) - layout.node_shard_begin(shard_index_),
                                          layout.shard_numel());
}

void ShardedParameters::plan(std::vector<size_t> uses) {
  schedule_.plan(std::move(uses));
  reserve_buffers();
}

void ShardedParameters::reserve_buffers() {
  for (const auto& [numel, count] : schedule_.buffers()) pool_.reserve(numel, count);
}

int64_t ShardedParameters::elements_of_buffers(const GatherLimits& limits) const {
  int64_t elements = 0;
  for (const auto& [numel, count] : schedule_.buffers_with(limits)) elements += numel * count;
  return elements;
}

void ShardedParameters::use_memory(int64_t bytes) {
  // Includes existing buffers.
  const int64_t elements = (pool_.bytes() + bytes) / static_cast<int64_t>(pool_.options().dtype().itemsize());
  // Keeps the prefetch limit, because gathers during the optimizer's update slow the update down by more than they
  // save.
  GatherLimits limits{.prefetch_bucket_size = schedule_.limits().prefetch_bucket_size,
                      .param_persistence_threshold = 0,
                      .max_live_parameters = elements,
                      .max_reuse_distance = std::numeric_limits<int64_t>::max()};
  // A buffer cannot be used for a different length, so the total may exceed max_live_parameters.
  while (limits.max_live_parameters > 0) {
    const int64_t excess = elements_of_buffers(limits) - elements;
    if (excess <= 0) break;
    limits.max_live_parameters = std::max<int64_t>(0, limits.max_live_parameters - excess);
  }
  schedule_.set_limits(limits);
  reserve_buffers();
}

int64_t ShardedParameters::move_to_device(int64_t bytes) {
  if (!offloaded_) return 0;
  const auto item = static_cast<int64_t>(pool_.options().dtype().itemsize());
  std::vector<size_t> moved;
  int64_t total = 0;
  for (size_t u = 0; u < states_.size(); ++u) {
    const int64_t numel = layouts_[u].node_shard_numel();
    if (!states_[u].shard.is_cpu() || (total + numel) * item > bytes) continue;
    moved.push_back(u);
    total += numel;
  }
  if (moved.empty()) return 0;
  // Gathers in flight may read the memory that is about to be unmapped.
  if (inter_node_stream_) {
    start_all();
    inter_node_stream_->synchronize();
  }
  copy_stream_->synchronize();
  const at::Tensor all = levels_.nearest().buffer(total, pool_.options());
  int64_t offset = 0;
  for (const size_t u : moved) {
    wait_for_writer(u);
    const at::Tensor here = states_[u].node_shard;
    const at::Tensor there = all.narrow(0, std::exchange(offset, offset + here.numel()), here.numel());
    there.copy_(here);
    place(u, there);
  }
  return total * item;
}

void ShardedParameters::start(size_t unit) {
  UnitState& state = states_[unit];
  state.full = pool_.take(buffer_sizes_[unit]);
  if (in_codes(unit)) return start_in_codes(unit);
  state.views = views_of(unit);
  if (offloaded_ || (copy_stream_ && (state.pending_node_shard || state.written == Written::kLater))) {
    return start_on_copy_stream(unit);
  }
  wait_for_writer(unit);
  std::unique_ptr<PendingCollective> gathered;
  {
    std::optional<HostOrder> in_order;
    if (!has_streams(tensor_options_.device())) in_order.emplace();
    if (auto from_nodes = std::exchange(state.pending_node_shard, nullptr)) from_nodes->wait();
    gathered = levels_.intra_node().all_gather(state.node_shard, state.full);
  }
  follow(state, std::move(gathered));
}

void ShardedParameters::start_between_nodes(size_t unit) {
  UnitState& state = states_[unit];
  if (inter_node_stream_ && state.node_shard.is_cpu()) return start_between_hosts(unit);
  std::unique_ptr<PendingCollective> gathered;
  {
    c10::OptionalStreamGuard on_own_stream;
    // On copy_stream_, the gather would wait for buffers of units that were gathered earlier.
    if (inter_node_stream_ && (exchange_ || state.written == Written::kLater)) {
      if (state.written == Written::kNow) follow_current_stream(*inter_node_stream_);
      on_own_stream.reset_stream(*inter_node_stream_);
    }
    wait_for_writer(unit);
    gathered = gather_between_nodes(unit);
  }
  follow_between_nodes(state, std::move(gathered));
}

void ShardedParameters::start_between_hosts(size_t unit) {
  UnitState& state = states_[unit];
  if (state.written == Written::kNow) follow_current_stream(*inter_node_stream_);
  {
    const c10::StreamGuard on_own_stream(*inter_node_stream_);
    wait_for_writer(unit);
    const at::Tensor staging = inter_node_staging_.narrow(0, 0, state.node_shard.numel());
    const at::Tensor own =
        staging.narrow(0, state.shard.storage_offset() - state.node_shard.storage_offset(), state.shard.numel());
    own.copy_(state.shard, /*non_blocking=*/true);
    levels_.inter_node().all_gather(own, staging)->wait();
    state.node_shard.copy_(staging, /*non_blocking=*/true);
  }
  follow_between_nodes(state, std::make_unique<PendingCopy>(*inter_node_stream_));
}

void ShardedParameters::start_on_copy_stream(size_t unit) {
  UnitState& state = states_[unit];
  const FlatLayout& layout = layouts_[unit];
  // The current stream may still use the buffer.
  follow_current_stream(*copy_stream_);
  std::unique_ptr<PendingCollective> gathered;
  {
    const c10::StreamGuard on_copy_stream(*copy_stream_);
    wait_for_writer(unit);
    if (auto from_nodes = std::exchange(state.pending_node_shard, nullptr)) from_nodes->wait();
    at::Tensor node_shard = state.node_shard;
    const bool complete = node_shard.numel() == layout.padded_numel();
    if (node_shard.is_cpu() || complete) {
      node_shard = state.full.narrow(0, layout.node_shard_begin(shard_index_), layout.node_shard_numel());
      node_shard.copy_(state.node_shard, /*non_blocking=*/true);
    }
    if (!complete) {
      gathered = levels_.intra_node().all_gather(node_shard, state.full);
    } else {
      gathered = std::make_unique<PendingCopy>(*copy_stream_);
    }
  }
  // Without overlap, makes the current stream wait.
  follow(state, std::move(gathered));
}

void ShardedParameters::start_in_codes(size_t unit) {
  UnitState& state = states_[unit];
  state.views = codes_->views(unit, units_[unit], state.full);
  std::unique_ptr<PendingCollective> gathered;
  {
    c10::OptionalStreamGuard on_copy_stream;
    if (copy_stream_) {
      // The current stream may still use the buffer or write the shard.
      follow_current_stream(*copy_stream_);
      on_copy_stream.reset_stream(*copy_stream_);
    }
    wait_for_writer(unit);
    if (auto from_nodes = std::exchange(state.pending_node_shard, nullptr)) from_nodes->wait();
    gathered =
        std::make_unique<PendingExchange>(codes_->gather(unit, state.node_shard, state.full), tensor_options_.device());
  }
  follow(state, std::move(gathered));
}

at::Tensor ShardedParameters::scales(size_t unit) const { return in_codes(unit) ? codes_->scales(unit) : at::Tensor(); }

void ShardedParameters::about_to_use(size_t unit) {
  const GatherSchedule::Moves moves = schedule_.use(unit);
  for (const size_t other : moves.release) free_full(other);
  start_next(to_gather(moves.gather));
}

void ShardedParameters::release(size_t unit) {
  if (schedule_.release(unit)) free_full(unit);
}

void ShardedParameters::free_full(size_t unit) {
  UnitState& state = states_[unit];
  // The unit was prefetched for a use that did not happen. A started gather cannot be canceled, so all ranks start it.
  start_until(unit);
  if (state.pending) state.pending->wait();
  state.pending.reset();
  state.views.clear();
  pool_.put_back(std::exchange(state.full, at::Tensor()));
}

std::vector<ParameterStore::Due> ShardedParameters::to_gather(const std::vector<size_t>& units) {
  std::vector<Due> due;
  for (const size_t unit : units) due.push_back({.unit = unit});
  return due;
}

std::vector<ParameterStore::Due> ShardedParameters::due_after_publishing(size_t unit, Written /*written*/) {
  if (in_codes(unit)) codes_->outdate(unit);
  std::vector<Due> due = to_gather(schedule_.publish(unit));
  if (levels_.has_nodes()) due.insert(due.begin(), {.unit = unit, .between_nodes = true});
  return due;
}

void ShardedParameters::drop_gathered() {
  for (const size_t unit : schedule_.invalidate()) free_full(unit);
  if (!levels_.has_nodes()) return;
  // Includes gathers of node shards of units that were not gathered.
  start_all();
  for (UnitState& state : states_) {
    if (auto from_nodes = std::exchange(state.pending_node_shard, nullptr)) from_nodes->wait();
  }
  if (inter_node_stream_) follow_current_stream(*inter_node_stream_);
}

MemoryUse ShardedParameters::memory_use() const {
  MemoryUse use = common_memory();
  use.units_in_flight += pool_.bytes();
  if (inter_node_staging_.defined()) use.units_in_flight += static_cast<int64_t>(inter_node_staging_.nbytes());
  for (const UnitState& state : states_) {
    const auto bytes = static_cast<int64_t>(state.node_shard.nbytes());
    (offloaded_ && state.node_shard.is_cpu() ? use.host_parameters : use.parameters) += bytes;
  }
  return use;
}

}  // namespace mpzero::parallel
