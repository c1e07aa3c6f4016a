#include "parallel/parameter_store.hpp"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>

#include "parallel/host_memory.hpp"

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

}  // namespace

ParameterStore::ParameterStore(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts, int part,
                               Communicator& communicator, const Options& options)
    : units_(units),
      layouts_(layouts),
      communicator_(communicator),
      part_(part),
      on_host_(options.placement == Placement::kHost && options.device.is_cuda()),
      pool_(at::TensorOptions().dtype(options.dtype).device(options.device)) {
  transient_ = on_host_ || (options.sharded && layouts.front().parts() > 1);
  if (on_host_) copy_stream_ = c10::cuda::getStreamFromPool();
  states_.resize(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    UnitState& state = states_[u];
    const FlatLayout& layout = layouts[u];
    const auto on_device = at::TensorOptions().dtype(options.dtype).device(options.device);
    if (on_host_) {
      state.shard = host_tensor(layout.part_numel(), options.dtype, options.pinned);
    } else if (transient_) {
      state.shard = at::zeros({layout.part_numel()}, on_device);
    } else {
      state.whole = at::zeros({layout.padded_numel()}, on_device);
      state.shard = state.whole.narrow(0, layout.part_begin(part), layout.part_numel());
      state.views = parameter_views(state.whole, units[u]);
    }
  }
}

void ParameterStore::prefetch(size_t unit) {
  UnitState& state = states_[unit];
  if (!transient_ || state.whole.defined()) return;
  const FlatLayout& layout = layouts_[unit];
  state.whole = pool_.take(layout.padded_numel());
  state.views = parameter_views(state.whole, units_[unit]);
  const at::Tensor slice = state.whole.narrow(0, layout.part_begin(part_), layout.part_numel());
  if (!on_host_) {
    state.pending = communicator_.all_gather(state.shard, state.whole);
    return;
  }
  // The buffer's former user may still be at work on the current stream.
  at::cuda::CUDAEvent buffer_free;
  buffer_free.record(c10::cuda::getCurrentCUDAStream());
  buffer_free.block(*copy_stream_);
  const c10::StreamGuard on_copy_stream(*copy_stream_);
  slice.copy_(state.shard, /*non_blocking=*/true);
  if (layout.parts() > 1) {
    state.pending = communicator_.all_gather(slice, state.whole);
  } else {
    state.pending = std::make_unique<PendingCopy>(*copy_stream_);
  }
}

std::span<const at::Tensor> ParameterStore::gather(size_t unit) {
  prefetch(unit);
  UnitState& state = states_[unit];
  if (state.pending) {
    state.pending->wait();
    state.pending.reset();
  }
  ++state.users;
  return state.views;
}

void ParameterStore::release(size_t unit) {
  UnitState& state = states_[unit];
  --state.users;
  if (!transient_ || state.users > 0) return;
  state.views.clear();
  pool_.put_back(std::exchange(state.whole, at::Tensor()));
}

void ParameterStore::publish(size_t unit) {
  UnitState& state = states_[unit];
  if (transient_ || layouts_[unit].parts() == 1) return;
  state.pending = communicator_.all_gather(state.shard, state.whole);
}

}  // namespace mpzero::parallel
