#include "parallel/zero/parameter_store.hpp"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "parallel/host/host_memory.hpp"
#include "parallel/trace/profile_range.hpp"

namespace mpzero::parallel {
namespace {

// A copy to the device, queued on a separate stream.
class PendingCopy final : public PendingCollective {
 public:
  explicit PendingCopy(const c10::cuda::CUDAStream& stream) { done_.record(stream); }
  void wait() override { done_.block(c10::cuda::getCurrentCUDAStream()); }

 private:
  at::cuda::CUDAEvent done_;
};

std::vector<int64_t> padded_sizes(const std::vector<FlatLayout>& layouts) {
  std::vector<int64_t> sizes;
  for (const FlatLayout& layout : layouts) sizes.push_back(layout.padded_numel());
  return sizes;
}

}  // namespace

ParameterStore::Sizes ParameterStore::sizes(const std::vector<FlatLayout>& layouts, const Options& options) {
  Sizes sizes{.offloaded = options.placement == Placement::kHost && options.device.is_cuda()};
  sizes.transient = sizes.offloaded || (options.sharded && layouts.front().parts() > 1);
  for (const FlatLayout& layout : layouts) {
    sizes.kept.push_back(sizes.transient ? layout.part_numel() : layout.padded_numel());
  }
  return sizes;
}

MemoryUse ParameterStore::memory_use(const std::vector<FlatLayout>& layouts, const Options& options,
                                     const std::vector<size_t>& uses) {
  const Sizes made = sizes(layouts, options);
  const auto item = static_cast<int64_t>(c10::elementSize(options.dtype));
  MemoryUse use;
  for (const int64_t numel : made.kept) (made.offloaded ? use.host_parameters : use.parameters) += numel * item;
  if (!made.transient) return use;
  GatherSchedule schedule(padded_sizes(layouts), options.limits);
  schedule.plan(uses);
  for (const auto& [numel, count] : schedule.buffers()) use.units_in_flight += numel * count * item;
  return use;
}

ParameterStore::ParameterStore(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts, int part,
                               Communicator& communicator, const Options& options)
    : units_(units),
      layouts_(layouts),
      communicator_(communicator),
      part_(part),
      overlap_(options.overlap),
      pool_(communicator, at::TensorOptions().dtype(options.dtype).device(options.device)),
      schedule_(padded_sizes(layouts), options.limits) {
  const Sizes made = sizes(layouts, options);
  transient_ = made.transient;
  offloaded_ = made.offloaded;
  states_.resize(units.size());
  if (offloaded_) {
    copy_stream_ = c10::cuda::getStreamFromPool();
    const std::vector<at::Tensor> shards = host_tensors(made.kept, options.dtype, options.pinned);
    for (size_t u = 0; u < units.size(); ++u) states_[u].shard = shards[u];
    return;
  }
  // One buffer for all units, since registering one costs time and address space.
  const at::Tensor all =
      communicator.buffer(std::accumulate(made.kept.begin(), made.kept.end(), int64_t{0}), pool_.options());
  int64_t offset = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    UnitState& state = states_[u];
    const at::Tensor own = all.narrow(0, std::exchange(offset, offset + made.kept[u]), made.kept[u]);
    if (transient_) {
      state.shard = own;
    } else {
      state.whole = own;
      state.shard = state.whole.narrow(0, layouts[u].part_begin(part), layouts[u].part_numel());
      state.views = parameter_views(state.whole, units[u]);
    }
  }
}

void ParameterStore::plan(std::vector<size_t> uses) {
  if (!transient_) return;
  schedule_.plan(std::move(uses));
  reserve_buffers();
}

void ParameterStore::reserve_buffers() {
  for (const auto& [numel, count] : schedule_.buffers()) pool_.reserve(numel, count);
}

int64_t ParameterStore::elements_of_buffers(const GatherLimits& limits) const {
  int64_t elements = 0;
  for (const auto& [numel, count] : schedule_.buffers_with(limits)) elements += numel * count;
  return elements;
}

void ParameterStore::use_memory(int64_t bytes) {
  if (!transient_) return;
  // Existing buffers count too.
  const int64_t elements = (pool_.bytes() + bytes) / static_cast<int64_t>(pool_.options().dtype().itemsize());
  // The prefetch size stays the same: gathers during the optimizer's update slow it down by more than they gain.
  GatherLimits limits{.prefetch_bucket_size = schedule_.limits().prefetch_bucket_size,
                      .param_persistence_threshold = 0,
                      .max_live_parameters = elements,
                      .max_reuse_distance = std::numeric_limits<int64_t>::max()};
  // Buffers of one length cannot serve another, so their total may exceed the amount gathered at a time.
  while (limits.max_live_parameters > 0) {
    const int64_t excess = elements_of_buffers(limits) - elements;
    if (excess <= 0) break;
    limits.max_live_parameters = std::max<int64_t>(0, limits.max_live_parameters - excess);
  }
  schedule_.set_limits(limits);
  reserve_buffers();
}

int64_t ParameterStore::move_to_device(int64_t bytes) {
  if (!offloaded_) return 0;
  const auto item = static_cast<int64_t>(pool_.options().dtype().itemsize());
  std::vector<size_t> moved;
  int64_t total = 0;
  for (size_t u = 0; u < states_.size(); ++u) {
    const int64_t numel = layouts_[u].part_numel();
    if (!states_[u].shard.is_cpu() || (total + numel) * item > bytes) continue;
    moved.push_back(u);
    total += numel;
  }
  if (moved.empty()) return 0;
  // Gathers in flight may read the memory that is about to be unmapped.
  copy_stream_->synchronize();
  const at::Tensor all = communicator_.buffer(total, pool_.options());
  int64_t offset = 0;
  for (const size_t u : moved) {
    UnitState& state = states_[u];
    if (state.written == Written::kLater) writer_->wait(u);
    const at::Tensor there = all.narrow(0, std::exchange(offset, offset + state.shard.numel()), state.shard.numel());
    there.copy_(state.shard);
    state.shard = there;
  }
  return total * item;
}

void ParameterStore::gather_next(const std::vector<size_t>& units) {
  for (const size_t unit : units) {
    states_[unit].due = true;
    due_.push_back(unit);
  }
  start_certain();
}

void ParameterStore::start_certain() {
  while (!due_.empty() && states_[due_.front()].written == Written::kNow) start_oldest();
}

void ParameterStore::start_written() {
  while (!due_.empty()) {
    if (states_[due_.front()].written == Written::kLater && !writer_->written(due_.front())) return;
    start_oldest();
  }
}

void ParameterStore::start_until(size_t unit) {
  while (states_[unit].due) start_oldest();
}

void ParameterStore::start_oldest() {
  const size_t unit = due_.front();
  const ProfileRange range("gather", units_[unit].name);
  transient_ ? start_to_gather(unit) : start_whole(unit);
  states_[unit].written = Written::kNow;
  states_[unit].due = false;
  due_.pop_front();
}

void ParameterStore::follow_current_stream() {
  at::cuda::CUDAEvent so_far;
  so_far.record(c10::cuda::getCurrentCUDAStream());
  so_far.block(*copy_stream_);
}

void ParameterStore::start_to_gather(size_t unit) {
  UnitState& state = states_[unit];
  const FlatLayout& layout = layouts_[unit];
  const bool later = state.written == Written::kLater;
  state.whole = pool_.take(layout.padded_numel());
  state.views = parameter_views(state.whole, units_[unit]);
  if (!copy_stream_ || (!offloaded_ && !later)) {
    if (later) writer_->wait(unit);
    follow(state, communicator_.all_gather(state.shard, state.whole));
    return;
  }
  // The buffer's previous user may still run on the current stream.
  follow_current_stream();
  {
    const c10::StreamGuard on_copy_stream(*copy_stream_);
    if (later) writer_->wait(unit);
    at::Tensor shard = state.shard;
    if (shard.is_cpu() || layout.parts() == 1) {
      shard = state.whole.narrow(0, layout.part_begin(part_), layout.part_numel());
      shard.copy_(state.shard, /*non_blocking=*/true);
    }
    if (layout.parts() > 1) {
      state.pending = communicator_.all_gather(shard, state.whole);
    } else {
      state.pending = std::make_unique<PendingCopy>(*copy_stream_);
    }
  }
  follow(state, std::move(state.pending));
}

void ParameterStore::start_whole(size_t unit) {
  UnitState& state = states_[unit];
  const bool later = state.written == Written::kLater;
  if (layouts_[unit].parts() == 1) {
    if (later) writer_->wait(unit);
    return;
  }
  if (!copy_stream_ || !later) {
    if (later) writer_->wait(unit);
    follow(state, communicator_.all_gather(state.shard, state.whole));
    return;
  }
  // invalidate() has made this stream wait for the old parameters' last use.
  const c10::StreamGuard on_copy_stream(*copy_stream_);
  writer_->wait(unit);
  follow(state, communicator_.all_gather(state.shard, state.whole));
}

void ParameterStore::follow(UnitState& state, std::unique_ptr<PendingCollective> pending) {
  if (overlap_) {
    state.pending = std::move(pending);
  } else {
    pending->wait();
  }
}

std::span<const at::Tensor> ParameterStore::gather(size_t unit) {
  if (transient_) {
    const GatherSchedule::Moves moves = schedule_.use(unit);
    for (const size_t other : moves.let_go) let_go(other);
    gather_next(moves.gather);
  }
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
  return state.views;
}

void ParameterStore::release(size_t unit) {
  if (transient_ && schedule_.release(unit)) let_go(unit);
}

void ParameterStore::let_go(size_t unit) {
  UnitState& state = states_[unit];
  // Gathered ahead for a use that did not happen. A rank that has started it cannot cancel it, so all ranks complete
  // it.
  start_until(unit);
  if (state.pending) state.pending->wait();
  state.pending.reset();
  state.views.clear();
  pool_.put_back(std::exchange(state.whole, at::Tensor()));
}

void ParameterStore::invalidate() {
  if (transient_) {
    for (const size_t unit : schedule_.invalidate()) let_go(unit);
  } else {
    while (!due_.empty()) start_oldest();
    for (UnitState& state : states_) {
      if (state.pending) std::exchange(state.pending, nullptr)->wait();
    }
  }
  if (copy_stream_) follow_current_stream();
}

void ParameterStore::publish(size_t unit, Written written) {
  states_[unit].written = written;
  if (transient_) {
    gather_next(schedule_.publish(unit));
  } else if (layouts_[unit].parts() > 1 || written == Written::kLater) {
    gather_next({unit});
  }
}

void ParameterStore::set_writer(ShardWriter& writer) {
  writer_ = &writer;
  if (pool_.options().device().is_cuda() && !copy_stream_) copy_stream_ = c10::cuda::getStreamFromPool();
}

MemoryUse ParameterStore::memory_use() const {
  MemoryUse use{.units_in_flight = pool_.bytes()};
  for (const UnitState& state : states_) {
    const at::Tensor& owned = transient_ ? state.shard : state.whole;
    (offloaded_ && owned.is_cpu() ? use.host_parameters : use.parameters) += static_cast<int64_t>(owned.nbytes());
  }
  return use;
}

}  // namespace mpzero::parallel
