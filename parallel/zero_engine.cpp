#include "parallel/zero_engine.hpp"

#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "parallel/host_memory.hpp"
#include "parallel/profile_range.hpp"

namespace mpzero::parallel {
namespace {

std::vector<FlatLayout> make_layouts(const std::vector<UnitSpec>& units, int parts) {
  std::vector<FlatLayout> layouts;
  layouts.reserve(units.size());
  for (const UnitSpec& unit : units) layouts.emplace_back(unit.numel(), parts);
  return layouts;
}

int num_parts(const ZeroOptions& options, const Communicator& communicator) {
  return options.stage == 0 ? 1 : communicator.world_size();
}

}  // namespace

ZeroEngine::ZeroEngine(const std::vector<UnitSpec>& units, const ZeroOptions& options,
                       Communicator& parameter_communicator, Communicator& gradient_communicator)
    : units_(units),
      options_(options),
      communicator_(gradient_communicator),
      part_(options.stage == 0 ? 0 : gradient_communicator.rank()),
      layouts_(make_layouts(units, num_parts(options, gradient_communicator))),
      parameters_(units_, layouts_, part_, parameter_communicator,
                  {.sharded = options.stage == 3,
                   .placement = options.parameter_placement,
                   .pinned = options.pin_memory,
                   .overlap = options.overlap,
                   .limits = options.gather_limits,
                   .device = options.device,
                   .dtype = options.dtype}),
      gradients_(units_, layouts_, part_, gradient_communicator,
                 {.partitioned = options.stage >= 2,
                  .overlap = options.overlap,
                  .reduce_bucket_size = options.reduce_bucket_size,
                  .gradient_accumulation_steps = options.gradient_accumulation_steps,
                  .device = options.device,
                  .communication_dtype = options.communication_dtype,
                  .accumulation_dtype = options.accumulation_dtype}) {
  gradients_.on_summed([this](size_t unit) { take_gradient(unit); });
  const bool offload = options.optimizer_placement == Placement::kHost;
  int64_t total = 0;
  for (const UnitSpec& unit : units_) total += unit.numel();
  // The first units of the forward pass are updated last on the host, so they are the ones to keep on the device.
  int64_t on_device_budget =
      offload ? std::llround(static_cast<double>(total) * (1 - options.optimizer_host_ratio)) : total;
  std::optional<c10::cuda::CUDAStream> copy_stream;
  if (offload && options.device.is_cuda()) copy_stream = c10::cuda::getStreamFromPool();
  if (options.moment_dtype != at::kFloat && (offload || options.device.is_cpu())) {
    throw_user_error(
        "bf16.bf16_optimizer_states keeps AdamW's moments in bf16, which only the update on a GPU can: set it to "
        "false, or "
        "{}",
        offload ? "remove offload_optimizer" : "train on a GPU");
  }
  shards_.reserve(units_.size());
  int64_t first = 0;
  for (size_t u = 0; u < units_.size(); ++u) {
    const bool fits = units_[u].numel() <= on_device_budget;
    if (fits) on_device_budget -= units_[u].numel();
    shards_.emplace_back(layouts_[u].part_numel(),
                         OptimizerShard::Options{.placement = fits ? Placement::kDevice : Placement::kHost,
                                                 .device = options.device,
                                                 .pinned = options.pin_memory,
                                                 .copy_stream = copy_stream,
                                                 .parameter_placement = options.parameter_placement,
                                                 .gradient_dtype = gradients_.shard_dtype(),
                                                 .parameter_dtype = options.dtype,
                                                 .moment_dtype = options.moment_dtype,
                                                 .first = first + layouts_[u].part_begin(part_)});
    first += units_[u].numel();
  }
  partial_squares_ = at::zeros({static_cast<int64_t>(units_.size()), num_square_partials(options.device)},
                               at::TensorOptions().dtype(at::kDouble).device(options.device));
  totals_ = at::zeros({2}, at::TensorOptions().dtype(at::kDouble).pinned_memory(options.device.is_cuda()));
  if (options.device.is_cuda()) {
    gradient_scale_ = at::zeros({}, at::TensorOptions().device(options.device));
    measuring_stream_ = c10::cuda::getStreamFromPool();
  }
}

ZeroEngine::Shard ZeroEngine::shard(size_t unit) const {
  return {.begin = std::min(layouts_[unit].part_begin(part_), layouts_[unit].numel()),
          .count = layouts_[unit].part_used(part_)};
}

void ZeroEngine::initialize(const ParameterSource& source, ProcessGroup& group) {
  const auto read = [&](size_t u, StateKind kind, int64_t begin, std::span<float> out) {
    if (kind != StateKind::kMaster) {
      std::fill(out.begin(), out.end(), 0.0F);
      return;
    }
    // The part of each parameter that lies in [begin, end).
    const int64_t end = begin + static_cast<int64_t>(out.size());
    int64_t offset = 0;
    for (const ParameterSpec& parameter : units_[u].parameters) {
      const int64_t first = std::max(begin, offset);
      const int64_t last = std::min(end, offset + parameter.numel());
      if (first < last) {
        source.read(parameter, first - offset,
                    out.subspan(static_cast<size_t>(first - begin), static_cast<size_t>(last - first)));
      }
      offset += parameter.numel();
    }
  };
  restore(read, group);
}

void ZeroEngine::restore(const StateReader& read, ProcessGroup& group) {
  run_on_all_ranks(group, [&] {
    for (size_t u = 0; u < units_.size(); ++u) {
      const Shard mine = shard(u);
      const at::Tensor values = staging(mine.count);
      for (const StateKind kind : {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq}) {
        read(u, kind, mine.begin, {values.data_ptr<float>(), static_cast<size_t>(mine.count)});
        shards_[u].write(kind, values);
      }
    }
  });
  publish_all();
}

void ZeroEngine::publish_all() {
  parameters_.invalidate();
  for (size_t u = 0; u < units_.size(); ++u) {
    shards_[u].publish(parameters_.shard(u));
    parameters_.publish(u);
  }
}

at::Tensor ZeroEngine::staging(int64_t count) {
  if (!staging_.defined()) {
    int64_t largest = 0;
    for (const FlatLayout& layout : layouts_) largest = std::max(largest, layout.part_numel());
    staging_ = host_tensor(largest, at::kFloat, options_.pin_memory && options_.device.is_cuda());
  }
  return staging_.narrow(0, 0, count);
}

std::span<const float> ZeroEngine::read_state(size_t unit, StateKind kind) {
  const at::Tensor values = staging(shard(unit).count);
  shards_[unit].read(kind, values);
  return {values.const_data_ptr<float>(), static_cast<size_t>(values.numel())};
}

void ZeroEngine::begin_step() { gradients_.begin_step(); }

void ZeroEngine::take_gradient(size_t unit) {
  const at::Tensor& gradient = gradients_.shard(unit);
  const at::Tensor partial = partial_squares_[static_cast<int64_t>(unit)];
  if (measuring_stream_) {
    at::cuda::CUDAEvent gradient_ready;
    gradient_ready.record(c10::cuda::getCurrentCUDAStream());
    gradient_ready.block(*measuring_stream_);
    const c10::StreamGuard on_measuring_stream(*measuring_stream_);
    partial_sums_of_squares(gradient, partial);
  } else {
    partial_sums_of_squares(gradient, partial);
  }
  shards_[unit].fetch_gradient(gradient);
}

void ZeroEngine::measure(const at::Tensor& loss_sum, int64_t count) {
  gradients_.finish_step();
  num_losses_ = count;
  if (measuring_stream_) {
    at::cuda::CUDAEvent measured;
    measured.record(*measuring_stream_);
    measured.block(c10::cuda::getCurrentCUDAStream());
  }
  at::Tensor squares = partial_squares_.sum();
  // With unsharded states every rank has counted the whole gradient.
  if (layouts_.front().parts() == 1) squares.div_(communicator_.world_size());
  const at::Tensor totals = at::stack({squares, loss_sum.to(at::kDouble)});
  if (communicator_.world_size() > 1) communicator_.all_reduce_sum(totals)->wait();
  totals_.copy_(totals, /*non_blocking=*/true);
  if (!options_.device.is_cuda()) return;
  totals_arrived_.record(c10::cuda::getCurrentCUDAStream());
  clipping_scale_out(gradient_scale_, totals, options_.gradient_clipping);
}

StepSummary ZeroEngine::summary() {
  if (options_.device.is_cuda()) totals_arrived_.synchronize();
  const double* values = totals_.const_data_ptr<double>();
  return {.loss = values[1] / static_cast<double>(num_losses_), .grad_norm = std::sqrt(values[0])};
}

void ZeroEngine::update(double lr, int64_t update) {
  AdamWUpdate scalars = adamw_update(options_.adamw, lr, update, 1.0);
  scalars.rounding_seed = static_cast<uint32_t>(update);
  if (options_.device.is_cuda()) scalars.device_gradient_scale = gradient_scale_.const_data_ptr<float>();
  const bool host_takes_part =
      options_.device.is_cpu() ||
      std::any_of(shards_.begin(), shards_.end(), [](const OptimizerShard& shard) { return shard.on_host(); });
  if (host_takes_part) {
    const StepSummary measured = summary();
    if (!std::isfinite(measured.loss) || !std::isfinite(measured.grad_norm)) return;
    const double squares = totals_.const_data_ptr<double>()[0];
    scalars.gradient_scale = static_cast<float>(clipping_scale(squares, options_.gradient_clipping));
  }
  parameters_.invalidate();
  for (size_t u = 0; u < units_.size(); ++u) {
    const ProfileRange range("optimizer", units_[u].name);
    shards_[u].update(scalars, parameters_.shard(u));
    parameters_.publish(u);
  }
}

MemoryUse ZeroEngine::memory_use() const {
  MemoryUse use = parameters_.memory_use();
  use += gradients_.memory_use();
  for (const OptimizerShard& shard : shards_) use += shard.memory_use();
  return use;
}

}  // namespace mpzero::parallel
