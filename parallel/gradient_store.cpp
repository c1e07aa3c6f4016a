#include "parallel/gradient_store.hpp"

#include <ATen/ops/zeros.h>

namespace mpzero::parallel {
namespace {

// Reductions that may be under way while backward goes on; each holds a buffer of a whole unit.
constexpr size_t kReductionsUnderWay = 2;

}  // namespace

GradientStore::GradientStore(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts, int part,
                             Communicator& communicator, const Options& options)
    : units_(units),
      layouts_(layouts),
      communicator_(communicator),
      part_(part),
      partitioned_(options.partitioned && layouts.front().parts() > 1),
      // One micro-batch needs no accumulation, and its gradient is not more exact than its dtype.
      shard_dtype_(options.gradient_accumulation_steps > 1 ? at::kFloat : options.communication_dtype),
      pool_(at::TensorOptions().dtype(options.communication_dtype).device(options.device)) {
  const auto kept = at::TensorOptions().dtype(shard_dtype_).device(options.device);
  states_.resize(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    UnitState& state = states_[u];
    const FlatLayout& layout = layouts[u];
    if (partitioned_) {
      state.shard = at::zeros({layout.part_numel()}, kept);
    } else {
      state.whole = at::zeros({layout.padded_numel()}, kept);
      state.views = parameter_views(state.whole, units[u]);
      state.shard = state.whole.narrow(0, layout.part_begin(part), layout.part_numel());
    }
  }
}

void GradientStore::begin_step() {
  for (UnitState& state : states_) {
    state.shard_empty = true;
    state.whole_empty = true;
  }
}

GradientViews GradientStore::gradients(size_t unit) {
  UnitState& state = states_[unit];
  if (!partitioned_) return {state.views, !state.whole_empty};
  if (!state.whole.defined()) {
    const FlatLayout& layout = layouts_[unit];
    state.whole = pool_.take(layout.padded_numel());
    state.whole.narrow(0, layout.numel(), layout.padded_numel() - layout.numel()).zero_();
    state.views = parameter_views(state.whole, units_[unit]);
  }
  return {state.views, false};
}

void GradientStore::reduce(size_t unit) { partitioned_ ? reduce_partitioned(unit) : reduce_whole(unit); }

void GradientStore::reduce_partitioned(size_t unit) {
  UnitState& state = states_[unit];
  const FlatLayout& layout = layouts_[unit];
  Reduction reduction{.unit = unit,
                      .last_of_step = last_micro_batch_,
                      .addends = std::exchange(state.whole, at::Tensor()),
                      .sum = {},
                      .pending = {}};
  state.views.clear();
  reduction.sum = reduction.addends.narrow(0, layout.part_begin(part_), layout.part_numel());
  reduction.pending = communicator_.reduce_scatter_sum(reduction.addends, reduction.sum);
  follow(std::move(reduction));
}

void GradientStore::reduce_whole(size_t unit) {
  UnitState& state = states_[unit];
  state.whole_empty = false;
  if (!last_micro_batch_) return;
  if (communicator_.world_size() == 1) {
    if (on_summed_) on_summed_(unit);
    return;
  }
  const FlatLayout& layout = layouts_[unit];
  Reduction reduction{.unit = unit, .last_of_step = true, .addends = state.whole, .sum = state.shard, .pending = {}};
  if (pool_.options().dtype() != state.whole.dtype()) {
    reduction.addends = pool_.take(layout.padded_numel());
    reduction.addends.copy_(state.whole);
    reduction.sum = reduction.addends.narrow(0, layout.part_begin(part_), layout.part_numel());
  }
  reduction.pending = layout.parts() > 1 ? communicator_.reduce_scatter_sum(reduction.addends, reduction.sum)
                                         : communicator_.all_reduce_sum(reduction.addends);
  follow(std::move(reduction));
}

void GradientStore::follow(Reduction reduction) {
  under_way_.push_back(std::move(reduction));
  while (under_way_.size() > kReductionsUnderWay) {
    complete(std::move(under_way_.front()));
    under_way_.pop_front();
  }
}

void GradientStore::complete(Reduction reduction) {
  reduction.pending->wait();
  UnitState& state = states_[reduction.unit];
  if (reduction.sum.data_ptr() != state.shard.data_ptr()) {
    if (partitioned_ && !state.shard_empty) {
      state.shard.add_(reduction.sum);
    } else {
      state.shard.copy_(reduction.sum);
    }
    pool_.put_back(std::move(reduction.addends));
  }
  state.shard_empty = false;
  if (reduction.last_of_step && on_summed_) on_summed_(reduction.unit);
}

void GradientStore::finish_step() {
  while (!under_way_.empty()) {
    complete(std::move(under_way_.front()));
    under_way_.pop_front();
  }
}

}  // namespace mpzero::parallel
