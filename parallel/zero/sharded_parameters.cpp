#include "parallel/zero/sharded_parameters.hpp"

#include <ATen/cuda/CUDAEvent.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "parallel/host/host_memory.hpp"

namespace mpzero::parallel {
namespace {

// A copy to the device, queued on a stream of its own.
class PendingCopy final : public PendingCollective {
 public:
  explicit PendingCopy(const c10::cuda::CUDAStream& stream) { done_.record(stream); }
  void wait() override { done_.block(c10::cuda::getCurrentCUDAStream()); }

 private:
  at::cuda::CUDAEvent done_;
};

std::vector<int64_t> shard_sizes(const std::vector<FlatLayout>& layouts) {
  std::vector<int64_t> sizes;
  for (const FlatLayout& layout : layouts) sizes.push_back(layout.shard_numel());
  return sizes;
}

int64_t sum(const std::vector<int64_t>& sizes) {
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  return total;
}

}  // namespace

bool is_offloaded(const ParameterStoreOptions& options) {
  return options.placement == Placement::kHost && options.device.is_cuda();
}

ShardedParameters::ShardedParameters(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts,
                                     int rank, Communicator& communicator, const ParameterStoreOptions& options)
    : ParameterStore(units, layouts, rank, communicator, options),
      offloaded_(is_offloaded(options)),
      pool_(communicator, tensor_options_),
      schedule_(full_sizes(layouts), options.limits) {
  const std::vector<int64_t> sizes = shard_sizes(layouts);
  if (offloaded_) {
    copy_stream_ = c10::cuda::getStreamFromPool();
    const std::vector<at::Tensor> shards = host_tensors(sizes, options.dtype, options.pinned);
    for (size_t u = 0; u < units.size(); ++u) states_[u].shard = shards[u];
    return;
  }
  // One buffer for all units, since registering one costs time and address space.
  const std::vector<at::Tensor> shards = split_buffer(communicator.buffer(sum(sizes), tensor_options_), sizes);
  for (size_t u = 0; u < units.size(); ++u) states_[u].shard = shards[u];
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
  // Buffers that exist already count too.
  const int64_t elements = (pool_.bytes() + bytes) / static_cast<int64_t>(pool_.options().dtype().itemsize());
  // How far ahead stays as it is: gathers that run during the optimizer's update slow it down by more than they gain.
  GatherLimits limits{.prefetch_bucket_size = schedule_.limits().prefetch_bucket_size,
                      .param_persistence_threshold = 0,
                      .max_live_parameters = elements,
                      .max_reuse_distance = std::numeric_limits<int64_t>::max()};
  // Buffers of one length cannot serve another, so that all together may be more than what is gathered at a time.
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
    const int64_t numel = layouts_[u].shard_numel();
    if (!states_[u].shard.is_cpu() || (total + numel) * item > bytes) continue;
    moved.push_back(u);
    total += numel;
  }
  if (moved.empty()) return 0;
  // Gathers may be under way that read the memory which is about to be unmapped.
  copy_stream_->synchronize();
  const at::Tensor all = communicator_.buffer(total, pool_.options());
  int64_t offset = 0;
  for (const size_t u : moved) {
    UnitState& state = states_[u];
    wait_for_writer(u);
    const at::Tensor there = all.narrow(0, std::exchange(offset, offset + state.shard.numel()), state.shard.numel());
    there.copy_(state.shard);
    state.shard = there;
  }
  return total * item;
}

void ShardedParameters::start(size_t unit) {
  UnitState& state = states_[unit];
  state.full = pool_.take(layouts_[unit].padded_numel());
  state.views = parameter_views(state.full, units_[unit]);
  if (offloaded_ || (copy_stream_ && state.written == Written::kLater)) return start_on_copy_stream(unit);
  wait_for_writer(unit);
  follow(state, communicator_.all_gather(state.shard, state.full));
}

void ShardedParameters::start_on_copy_stream(size_t unit) {
  UnitState& state = states_[unit];
  const FlatLayout& layout = layouts_[unit];
  // The buffer's former user may still be at work on the current stream.
  follow_current_stream();
  std::unique_ptr<PendingCollective> gathered;
  {
    const c10::StreamGuard on_copy_stream(*copy_stream_);
    wait_for_writer(unit);
    at::Tensor shard = state.shard;
    if (shard.is_cpu() || layout.num_shards() == 1) {
      shard = state.full.narrow(0, layout.shard_begin(rank_), layout.shard_numel());
      shard.copy_(state.shard, /*non_blocking=*/true);
    }
    if (layout.num_shards() > 1) {
      gathered = communicator_.all_gather(shard, state.full);
    } else {
      gathered = std::make_unique<PendingCopy>(*copy_stream_);
    }
  }
  // Without overlap the current stream waits.
  follow(state, std::move(gathered));
}

void ShardedParameters::about_to_use(size_t unit) {
  const GatherSchedule::Moves moves = schedule_.use(unit);
  for (const size_t other : moves.release) free_full(other);
  gather_next(moves.gather);
}

void ShardedParameters::release(size_t unit) {
  if (schedule_.release(unit)) free_full(unit);
}

void ShardedParameters::free_full(size_t unit) {
  UnitState& state = states_[unit];
  // Gathered ahead for a use that did not come. A rank that has started it cannot take it back, so all do.
  start_until(unit);
  if (state.pending) state.pending->wait();
  state.pending.reset();
  state.views.clear();
  pool_.put_back(std::exchange(state.full, at::Tensor()));
}

std::vector<size_t> ShardedParameters::due_after_publishing(size_t unit, Written /*written*/) {
  return schedule_.publish(unit);
}

void ShardedParameters::drop_gathered() {
  for (const size_t unit : schedule_.invalidate()) free_full(unit);
}

MemoryUse ShardedParameters::memory_use(const std::vector<FlatLayout>& layouts, const ParameterStoreOptions& options,
                                        const std::vector<size_t>& uses) {
  const auto item = static_cast<int64_t>(c10::elementSize(options.dtype));
  MemoryUse use;
  (is_offloaded(options) ? use.host_parameters : use.parameters) = sum(shard_sizes(layouts)) * item;
  GatherSchedule schedule(full_sizes(layouts), options.limits);
  schedule.plan(uses);
  for (const auto& [numel, count] : schedule.buffers()) use.units_in_flight += numel * count * item;
  return use;
}

MemoryUse ShardedParameters::memory_use() const {
  MemoryUse use{.units_in_flight = pool_.bytes()};
  for (const UnitState& state : states_) {
    const auto bytes = static_cast<int64_t>(state.shard.nbytes());
    (offloaded_ && state.shard.is_cpu() ? use.host_parameters : use.parameters) += bytes;
  }
  return use;
}

}  // namespace mpzero::parallel
