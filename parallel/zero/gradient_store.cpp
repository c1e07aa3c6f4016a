#include "parallel/zero/gradient_store.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>

#include "parallel/trace/profile_range.hpp"

namespace mpzero::parallel {
namespace {

// Reductions that may be under way while backward goes on; each holds a buffer of a whole unit. More than this gains
// nothing: they follow each other on one stream.
constexpr size_t kReductionsUnderWay = 3;

}  // namespace

GradientStore::GradientStore(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts, int part,
                             Communicator& communicator, const Options& options)
    : units_(units),
      layouts_(layouts),
      communicator_(communicator),
      part_(part),
      partitioned_(options.partitioned && layouts.front().parts() > 1),
      overlap_(options.overlap),
      reduce_bucket_size_(options.reduce_bucket_size),
      // One micro-batch needs no accumulation, and its gradient is not more exact than its dtype.
      shard_dtype_(options.gradient_accumulation_steps > 1 ? options.accumulation_dtype : options.communication_dtype),
      pool_(communicator, at::TensorOptions().dtype(options.communication_dtype).device(options.device)) {
  const auto kept = at::TensorOptions().dtype(shard_dtype_).device(options.device);
  // One buffer for all units, where collectives read or write it.
  int64_t total = 0;
  for (const FlatLayout& layout : layouts) total += partitioned_ ? layout.part_numel() : layout.padded_numel();
  const bool communicated = shard_dtype_ == options.communication_dtype;
  const at::Tensor all = communicated ? communicator.buffer(total, kept) : at::zeros({total}, kept);
  int64_t offset = 0;
  const auto next = [&](int64_t numel) { return all.narrow(0, std::exchange(offset, offset + numel), numel); };
  states_.resize(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    UnitState& state = states_[u];
    const FlatLayout& layout = layouts[u];
    if (partitioned_) {
      state.shard = next(layout.part_numel());
    } else {
      state.whole = next(layout.padded_numel());
      state.views = parameter_views(state.whole, units[u]);
      state.shard = state.whole.narrow(0, layout.part_begin(part), layout.part_numel());
    }
  }
  if (partitioned_ || (communicator.world_size() > 1 && !communicated)) reserve_buffers();
  if (layouts.front().parts() > 1) {
    int64_t largest = 0;
    for (const FlatLayout& layout : layouts) largest = std::max(largest, layout.padded_numel());
    reduce_scatter_bytes_ = communicator.reserve_reduce_scatter(largest, pool_.options());
  }
}

// As many as the units of each length can hold at a time: the one at work, and those that are being summed. (With two
// at work, as an embedding beside a layer, or one that is still being summed since the last micro-batch, take_buffer()
// waits for sums.)
void GradientStore::reserve_buffers() {
  std::map<int64_t, int64_t> units;
  for (const FlatLayout& layout : layouts_) ++units[layout.padded_numel()];
  for (const auto& [numel, count] : units) {
    const int64_t fit = std::max<int64_t>(1, reduce_bucket_size_ / numel);
    pool_.reserve(numel, std::min({count, fit + 1, static_cast<int64_t>(kReductionsUnderWay) + 1}));
  }
}

void GradientStore::begin_step() {
  for (UnitState& state : states_) state.empty = true;
}

GradientViews GradientStore::gradients(size_t unit) {
  UnitState& state = states_[unit];
  if (!partitioned_) return {state.views, !state.empty};
  if (!state.whole.defined()) {
    const FlatLayout& layout = layouts_[unit];
    state.whole = take_buffer(layout.padded_numel());
    state.whole.narrow(0, layout.numel(), layout.padded_numel() - layout.numel()).zero_();
    state.views = parameter_views(state.whole, units_[unit]);
  }
  return {state.views, false};
}

at::Tensor GradientStore::take_buffer(int64_t numel) {
  while (!pool_.has_free(numel) && !under_way_.empty()) complete_oldest();
  return pool_.take(numel);
}

void GradientStore::reduce(size_t unit) {
  const ProfileRange range("reduce", units_[unit].name);
  partitioned_ ? reduce_partitioned(unit) : reduce_whole(unit);
}

void GradientStore::reduce_partitioned(size_t unit) {
  UnitState& state = states_[unit];
  Reduction reduction{.unit = unit,
                      .last_of_step = last_micro_batch_,
                      .addends = std::exchange(state.whole, at::Tensor()),
                      .pending = {}};
  state.views.clear();
  const SumMode mode = std::exchange(state.empty, false) ? SumMode::kOverwrite : SumMode::kAdd;
  reduction.pending = communicator_.reduce_scatter_sum(reduction.addends, state.shard, mode);
  follow(std::move(reduction));
}

void GradientStore::reduce_whole(size_t unit) {
  UnitState& state = states_[unit];
  state.empty = false;
  if (!last_micro_batch_) return;
  if (communicator_.world_size() == 1) {
    if (on_summed_) on_summed_(unit);
    return;
  }
  const FlatLayout& layout = layouts_[unit];
  Reduction reduction{.unit = unit, .addends = state.whole, .pooled = false, .pending = {}};
  if (pool_.options().dtype() != state.whole.dtype()) {
    reduction.addends = take_buffer(layout.padded_numel());
    reduction.addends.copy_(state.whole);
    reduction.pooled = true;
  }
  reduction.pending = layout.parts() > 1 ? communicator_.reduce_scatter_sum(reduction.addends, state.shard)
                                         : communicator_.all_reduce_sum(reduction.addends);
  follow(std::move(reduction));
}

void GradientStore::follow(Reduction reduction) {
  under_way_.push_back(std::move(reduction));
  while (too_many_under_way()) complete_oldest();
}

bool GradientStore::too_many_under_way() const {
  if (under_way_.empty()) return false;
  if (!overlap_ || under_way_.size() > kReductionsUnderWay) return true;
  int64_t elements = 0;
  for (const Reduction& reduction : under_way_) elements += reduction.addends.numel();
  return under_way_.size() > 1 && elements > reduce_bucket_size_;
}

void GradientStore::complete_oldest() {
  Reduction reduction = std::move(under_way_.front());
  under_way_.pop_front();
  const ProfileRange range("take gradient", units_[reduction.unit].name);
  reduction.pending->wait();
  if (reduction.pooled && layouts_[reduction.unit].parts() == 1) {
    states_[reduction.unit].shard.copy_(reduction.addends);
  }
  if (reduction.pooled) pool_.put_back(std::move(reduction.addends));
  if (reduction.last_of_step && on_summed_) on_summed_(reduction.unit);
}

void GradientStore::finish_step() {
  while (!under_way_.empty()) complete_oldest();
}

MemoryUse GradientStore::memory_use() const {
  MemoryUse use{.units_in_flight = pool_.bytes() + reduce_scatter_bytes_};
  for (const UnitState& state : states_) use.gradients += (partitioned_ ? state.shard : state.whole).nbytes();
  return use;
}

}  // namespace mpzero::parallel
