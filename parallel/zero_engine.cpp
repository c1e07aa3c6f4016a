#include "parallel/zero_engine.hpp"

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "parallel/host_memory.hpp"

namespace mpzero::parallel {
namespace {

// DeepSpeed divides gradients by (norm + this) / clip where that exceeds 1.
constexpr double kClippingEpsilon = 1e-6;

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
                   .device = options.device,
                   .dtype = options.dtype}),
      gradients_(units_, layouts_, part_, gradient_communicator,
                 {.partitioned = options.stage >= 2,
                  .gradient_accumulation_steps = options.gradient_accumulation_steps,
                  .device = options.device,
                  .communication_dtype = options.communication_dtype}) {
  gradients_.on_summed([this](size_t unit) { take_gradient(unit); });
  const bool offload = options.optimizer_placement == Placement::kHost;
  int64_t total = 0;
  for (const UnitSpec& unit : units_) total += unit.numel();
  // The first units of the forward pass are updated last on the host, so they are the ones to keep on the device.
  int64_t on_device_budget =
      offload ? std::llround(static_cast<double>(total) * (1 - options.optimizer_host_ratio)) : total;
  std::optional<c10::cuda::CUDAStream> copy_stream;
  if (offload && options.device.is_cuda()) copy_stream = c10::cuda::getStreamFromPool();
  shards_.reserve(units_.size());
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
                                                 .parameter_dtype = options.dtype});
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

void ZeroEngine::begin_step() {
  gradients_.begin_step();
  squares_ = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(options_.device));
}

void ZeroEngine::take_gradient(size_t unit) {
  const at::Tensor& gradient = gradients_.shard(unit);
  squares_.add_(sum_of_squares(gradient));
  shards_[unit].fetch_gradient(gradient);
}

StepSummary ZeroEngine::summarize(const at::Tensor& loss_sum, int64_t count) {
  gradients_.finish_step();
  // With unsharded states every rank has counted the whole gradient.
  if (layouts_.front().parts() == 1) squares_.div_(communicator_.world_size());
  const at::Tensor totals = at::stack({squares_, loss_sum.to(at::kDouble)});
  if (communicator_.world_size() > 1) communicator_.all_reduce_sum(totals)->wait();
  const at::Tensor on_host = totals.cpu();
  const double* values = on_host.const_data_ptr<double>();
  return {.loss = values[1] / static_cast<double>(count), .grad_norm = std::sqrt(values[0])};
}

void ZeroEngine::update(double lr, int64_t update, double grad_norm) {
  const double clip = options_.gradient_clipping;
  const double coefficient = clip > 0 ? std::max(1.0, (grad_norm + kClippingEpsilon) / clip) : 1.0;
  const AdamWUpdate scalars = adamw_update(options_.adamw, lr, update, 1.0 / coefficient);
  for (size_t u = 0; u < units_.size(); ++u) {
    shards_[u].update(scalars, parameters_.shard(u));
    parameters_.publish(u);
  }
}

}  // namespace mpzero::parallel
