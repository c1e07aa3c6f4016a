#include "parallel/zero/zero_engine.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/parameter_spec.hpp"
#include "parallel/host/host_memory.hpp"
#include "parallel/streams/streams.hpp"
#include "parallel/trace/profile_range.hpp"

namespace mpzero::parallel {
namespace {

// Number of totals that the engine itself sums: squares and loss.
constexpr size_t kOwnTotals = 2;

std::vector<FlatLayout> make_layouts(const std::vector<UnitSpec>& units, const ZeroOptions& options,
                                     const ParallelLayout& ranks) {
  // Replicas stay equal only if the sums are bitwise equal on all ranks. Two consecutive sums do not guarantee bitwise
  // equality.
  if (options.stage == 0 && ranks.nodes > 1)
    throw_failure("ZeRO stage 0 does not support {} shard groups; use one", ranks.nodes);
  std::vector<FlatLayout> layouts;
  layouts.reserve(units.size());
  for (const UnitSpec& unit : units) {
    layouts.push_back(layout_of(unit, options.stage == 0 ? 1 : ranks.ranks(), ranks.nodes));
  }
  return layouts;
}

std::vector<FlatLayout> layouts_of_parameters(const std::vector<UnitSpec>& units, std::vector<FlatLayout> layouts,
                                              const ZeroOptions& options) {
  for (size_t u = 0; u < units.size(); ++u) {
    if (units[u].coded) layouts[u] = layouts[u].of_messages(options.codes, options.dtype);
  }
  return layouts;
}

std::vector<FlatLayout> layouts_of_gradients(const std::vector<UnitSpec>& units, std::vector<FlatLayout> layouts,
                                             const ParallelLayout& ranks) {
  for (size_t u = 0; u < units.size(); ++u) {
    if (!units[u].trainable()) layouts[u] = FlatLayout(0, layouts[u].num_shards(), ranks.nodes);
  }
  return layouts;
}

// Returns the number of elements in each optimizer state of the unit's shard.
int64_t state_numel(const UnitSpec& unit, const FlatLayout& layout) {
  return unit.trainable() ? layout.shard_numel() : 0;
}

// Elements read at a time when states are set, so that a large unit requires little additional host memory: 64 MiB.
constexpr int64_t kReadNumel = int64_t{16} << 20;

ParameterStoreOptions parameter_options(const ZeroOptions& options) {
  return {.sharded = options.stage == 3,
          .placement = options.parameter_placement,
          .pinned = options.pin_memory,
          .overlap = options.overlap,
          .compressed = options.compression.weights,
          .codec = options.codec,
          .codes = options.codes,
          .limits = options.limits.gather,
          .device = options.device,
          .dtype = options.dtype};
}

// Returns true if the engine's threads update states on the host. Otherwise, the process's threads update them in
// update().
bool has_host_threads(const ZeroOptions& options) {
  return options.optimizer_placement == Placement::kHost &&
         (has_streams(options.device) || options.host_update.threads > 0);
}

std::vector<bool> placed_on_host(const std::vector<UnitSpec>& units, const ZeroOptions& options) {
  return units_on_host(units, options.optimizer_placement == Placement::kHost ? options.optimizer_host_ratio : 0.0);
}

bool releases_gradients(const ZeroOptions& options) { return options.release_gradients && has_host_threads(options); }

GradientStore::Options gradient_options(const ZeroOptions& options) {
  return {.partitioned = options.stage >= 2,
          .overlap = options.overlap,
          .limits = options.limits,
          .gradient_accumulation_steps = options.gradient_accumulation_steps,
          .device = options.device,
          .communication_dtype = options.communication_dtype,
          .accumulation_dtype = options.accumulation_dtype,
          .compression = options.compression};
}

// `units`: all units of the store.
GradientStore::Options gradient_options(const ZeroOptions& options, const std::vector<UnitSpec>& units) {
  if (options.release_gradients && options.gradient_accumulation_steps > 1)
    throw_failure("release_gradients requires one micro-batch per step, not {}", options.gradient_accumulation_steps);
  GradientStore::Options of_store = gradient_options(options);
  if (releases_gradients(options)) of_store.released = placed_on_host(units, options);
  return of_store;
}

// Returns the host memory demand of these units' updates. `gradient_dtype`: GradientStore::shard_dtype().
HostMemoryDemand host_memory_demand(const ZeroOptions& options, const std::vector<FlatLayout>& layouts,
                                    const std::vector<bool>& on_host, at::ScalarType gradient_dtype) {
  const bool staged = has_streams(options.device);
  HostMemoryDemand demand{.lengths = {},
                          .staged = staged,
                          .parameters_stay = staged && options.parameter_placement == Placement::kHost,
                          .keeps_gradients = releases_gradients(options),
                          .gradient_dtype = gradient_dtype,
                          .parameter_dtype = options.dtype,
                          .moment_dtype = options.moment_dtype};
  for (size_t u = 0; u < layouts.size(); ++u) {
    if (on_host[u]) demand.lengths.push_back(layouts[u].shard_numel());
  }
  return demand;
}

HostMemoryPlan host_memory_plan(const ZeroOptions& options, const HostMemoryDemand& demand) {
  // Without overlap, all updates wait for the gradient norm.
  if (!options.overlap) return plan_host_memory(demand, 0);
  return plan_host_memory(demand, options.host_update.extra_bytes.value_or(default_extra_bytes(demand)));
}

}  // namespace

// The first units of the forward pass stay on the device, because their gradients are ready last and their parameters
// are needed first.
std::vector<bool> units_on_host(const std::vector<UnitSpec>& units, double host_ratio) {
  int64_t total = 0;
  for (const UnitSpec& unit : units) total += unit.trainable() ? unit.numel() : 0;
  int64_t left = std::llround(static_cast<double>(total) * (1 - host_ratio));
  std::vector<bool> on_host;
  for (const UnitSpec& unit : units) {
    on_host.push_back(unit.trainable() && unit.numel() > left);
    if (unit.trainable() && !on_host.back()) left -= unit.numel();
  }
  return on_host;
}

ZeroEngine::ZeroEngine(const std::vector<UnitSpec>& units, const ZeroOptions& options, const Levels& parameter_levels,
                       const Levels& gradient_levels)
    : parts_(units, options.frozen, options.codes != WeightCodes::kNone),
      units_(parts_.parts()),
      options_(options),
      levels_(gradient_levels),
      shard_index_(options.stage == 0 ? 0 : gradient_levels.shard_index()),
      layouts_(make_layouts(units_, options, gradient_levels.layout())),
      parameter_layouts_(layouts_of_parameters(units_, layouts_, options)),
      gradient_layouts_(layouts_of_gradients(units_, layouts_, gradient_levels.layout())),
      parameters_(
          make_parameter_store(units_, parameter_layouts_, shard_index_, parameter_levels, parameter_options(options))),
      gradients_(units_, gradient_layouts_, shard_index_, gradient_levels, gradient_options(options, units_)),
      totals_arrived_(options.device.type()) {
  if (options.codec && units_.size() > units.size())
    throw_failure("quantized gathers do not support units with both frozen and trainable parameters");
  if (options.codes != WeightCodes::kNone && options.compression.weights)
    throw_failure("quantized weights cannot be compressed between shard groups");
  gradients_.on_summed([this](size_t unit) { take_gradient(unit); },
                       [this](size_t unit) { host_->wait_for_copy(unit); });
  const std::vector<bool> host_units = placed_on_host(units_, options);
  if (has_host_threads(options) && !options.host_update.make) {
    const int threads = options.host_update.threads > 0 ? options.host_update.threads : at::get_num_threads();
    team_ = std::make_unique<ThreadTeam>(threads, options.host_update.cores);
  }
  shards_.reserve(units_.size());
  int64_t first = 0;
  for (size_t u = 0; u < units_.size(); ++u) {
    const int64_t begin = layouts_[u].shard_begin(shard_index_), numel = state_numel(units_[u], layouts_[u]);
    shards_.emplace_back(numel,
                         OptimizerShard::Options{.placement = host_units[u] ? Placement::kHost : Placement::kDevice,
                                                 .device = options.device,
                                                 .moment_dtype = options.moment_dtype,
                                                 .first = first + begin,
                                                 .team = team_.get(),
                                                 .decay = DecayRanges(units_[u], begin, numel, options.no_decay)});
    first += units_[u].numel();
  }
  if (has_host_threads(options)) make_host_optimizer(host_units);
  partial_squares_ = at::zeros({static_cast<int64_t>(units_.size()), num_square_partials(options.device)},
                               at::TensorOptions().dtype(at::kDouble).device(options.device));
  totals_ = at::zeros({kOwnTotals}, at::TensorOptions().dtype(at::kDouble).pinned_memory(options.device.is_cuda()));
  if (has_streams(options.device)) {
    gradient_scale_ = at::zeros({}, at::TensorOptions().device(options.device));
    measuring_stream_ = new_stream(options.device);
  }
}

void ZeroEngine::make_host_optimizer(const std::vector<bool>& host_units) {
  const HostMemoryDemand demand = host_memory_demand(options_, layouts_, host_units, gradients_.shard_dtype());
  if (demand.lengths.empty()) return;
  std::vector<OptimizerShard*> shards;
  for (size_t u = 0; u < units_.size(); ++u) shards.push_back(host_units[u] ? &shards_[u] : nullptr);
  const HostUpdater::Options host_options{.device = options_.device,
                                          .pinned = options_.pin_memory && options_.device.is_cuda(),
                                          .gradient_dtype = demand.gradient_dtype,
                                          .parameter_dtype = demand.parameter_dtype,
                                          .memory = host_memory_plan(options_, demand)};
  const MakeHostUpdater& make = options_.host_update.make;
  host_ = make ? make(std::move(shards), host_options)
               : std::make_unique<HostOptimizer>(*team_, std::move(shards), host_options);
  parameters_->set_writer(host_writer_);
}

ZeroEngine::Shard ZeroEngine::shard(size_t unit) const {
  return {.begin = std::min(layouts_[unit].shard_begin(shard_index_), layouts_[unit].numel()),
          .count = layouts_[unit].shard_used(shard_index_)};
}

void ZeroEngine::initialize(const ParameterSource& source, ProcessGroup& group) {
  const auto read = [&](size_t u, StateKind, int64_t begin, std::span<float> out) {
    visit_parameters(units_[u], begin, begin + static_cast<int64_t>(out.size()), [&](const ParameterRange& range) {
      source.read(range.parameter, range.begin,
                  out.subspan(static_cast<size_t>(range.offset), static_cast<size_t>(range.count)));
    });
  };
  set_states(read, Moments::kZero, group, {});
}

void ZeroEngine::restore(const StateReader& read, ProcessGroup& group, std::span<const Carried> carried) {
  set_states(read, Moments::kRead, group, carried);
}

void ZeroEngine::set_states(const StateReader& read, Moments moments, ProcessGroup& group,
                            std::span<const Carried> carried) {
  if (host_) {
    host_->discard();
    host_->wait_for_all();
  }
  last_was_clipped_ = true;
  // Frozen parameters are written in place.
  parameters_->invalidate();
  run_on_all_ranks(group, [&] {
    int64_t numel = 0;
    for (const FlatLayout& layout : layouts_) numel = std::max(numel, std::min(layout.shard_numel(), kReadNumel));
    const at::Tensor piece = host_tensor(numel, at::kFloat, options_.pin_memory && options_.device.is_cuda());
    for (size_t u = 0; u < units_.size(); ++u) {
      const Shard mine = shard(u);
      if (on_host(u)) host_->wait_for_holds(u);
      for (const StateKind kind : states_of(units_[u])) {
        if (kind != StateKind::kMaster && moments == Moments::kZero) {
          shards_[u].clear(kind);
        } else if (units_[u].coded) {
          encode(u, [&](std::span<float> out) { read(u, kind, mine.begin, out); });
        } else {
          for (int64_t first = 0; first < mine.count; first += kReadNumel) {
            const at::Tensor values = piece.narrow(0, 0, std::min(kReadNumel, mine.count - first));
            read(u, kind, mine.begin + first, {values.data_ptr<float>(), static_cast<size_t>(values.numel())});
            const at::Tensor state = is_frozen(u) ? parameters_->shard(u) : shards_[u].states()[kind];
            state.narrow(0, first, values.numel()).copy_(values);
          }
        }
      }
    }
  });
  if (GradientExchange* exchange = gradients_.exchange()) {
    exchange->clear();
    for (size_t u = 0; u < carried.size(); ++u) {
      if (carried[u].gradient_residual.defined()) exchange->residual(u).copy_(carried[u].gradient_residual);
    }
  }
  publish_all(carried);
}

Carried ZeroEngine::carried(size_t unit) {
  Carried carried = like_carried(unit);
  if (parameters_->is_compressed()) carried.parameters = parameters_->common_shard(unit);
  return carried;
}

Carried ZeroEngine::like_carried(size_t unit) const {
  Carried carried;
  const GradientExchange* exchange = gradients_.exchange();
  if (exchange != nullptr && !is_frozen(unit)) carried.gradient_residual = exchange->residual(unit);
  if (parameters_->is_compressed()) carried.parameters = parameters_->shard(unit);
  return carried;
}

void ZeroEngine::set_residual_reader(const std::function<void()>& wait) {
  if (GradientExchange* exchange = gradients_.exchange()) exchange->set_reader(wait);
}

void ZeroEngine::publish(size_t unit) {
  parameters_->publish(unit, on_host(unit) && options_.overlap ? Written::kLater : Written::kNow);
}

void ZeroEngine::publish_all(std::span<const Carried> carried) {
  parameters_->invalidate();
  if (parameters_->is_compressed()) {
    parameters_->begin_with_published();
    for (size_t u = 0; u < carried.size(); ++u) {
      if (carried[u].parameters.defined()) parameters_->set_common_shard(u, carried[u].parameters);
    }
    // Streams for gathers must wait for the writes of set_common_shard().
    parameters_->invalidate();
  }
  for (size_t u = 0; u < units_.size(); ++u) {
    if (on_host(u)) {
      host_->publish(u, parameters_->shard(u));
      if (!options_.overlap) host_->wait(u);
    } else if (!is_frozen(u)) {
      shards_[u].publish(parameters_->shard(u));
    }
    publish(u);
  }
}

void ZeroEngine::encode(size_t unit, const std::function<void(std::span<float>)>& read) {
  const int64_t padded = layouts_[unit].shard_numel(), used = shard(unit).count;
  const at::Tensor values = at::zeros({padded}, at::kFloat);
  read({values.data_ptr<float>(), static_cast<size_t>(used)});
  const at::Tensor message = at::empty({code_bytes(options_.codes, padded)}, at::kByte);
  encode_weights(options_.codes, values, message);
  parameters_->shard(unit).view(at::kByte).narrow(0, 0, message.numel()).copy_(message);
}

std::span<const float> ZeroEngine::read_state(size_t unit, StateKind kind) {
  if (on_host(unit)) host_->wait(unit);
  at::Tensor values = state(unit, kind);
  if (!values.is_cpu() || values.scalar_type() != at::kFloat) {
    if (!copy_.defined()) {
      int64_t largest = 0;
      for (const FlatLayout& layout : layouts_) largest = std::max(largest, layout.shard_numel());
      copy_ = host_tensor(largest, at::kFloat, options_.pin_memory && options_.device.is_cuda());
    }
    values = copy_.narrow(0, 0, values.numel()).copy_(values);
  }
  return {values.const_data_ptr<float>(), static_cast<size_t>(values.numel())};
}

at::Tensor ZeroEngine::state(size_t unit, StateKind kind) const {
  if (is_frozen(unit)) {
    if (kind != StateKind::kMaster) throw_failure("unit {} is frozen and has no moments", units_[unit].name);
    return parameters_->shard(unit).narrow(0, 0, shard(unit).count);
  }
  if (on_host(unit)) host_->wait_for_states(unit);
  return shards_[unit].state(kind, shard(unit).count);
}

void ZeroEngine::begin_step() { gradients_.begin_step(); }

void ZeroEngine::begin_step(double lr, int64_t update) {
  gradients_.begin_step(update);
  if (!host_ || !options_.overlap) return;
  if (options_.gradient_clipping > 0 && last_was_clipped_) return;
  host_->expect(scalars(lr, update));
}

AdamWUpdate ZeroEngine::scalars(double lr, int64_t update) const {
  AdamWUpdate scalars = adamw_update(options_.adamw, lr, update, 1.0);
  scalars.rounding_seed = static_cast<uint32_t>(update);
  return scalars;
}

void ZeroEngine::take_gradient(size_t unit) {
  const at::Tensor& gradient = gradients_.shard(unit);
  const at::Tensor partial = partial_squares_[static_cast<int64_t>(unit)];
  c10::OptionalStreamGuard on_measuring_stream;
  if (measuring_stream_) {
    follow_current_stream(*measuring_stream_);
    on_measuring_stream.reset_stream(*measuring_stream_);
  }
  partial_sums_of_squares(gradient, partial);
  // The memory of a released gradient is reused after the copy, so the copy must run after the squares.
  if (!releases_gradients(options_)) on_measuring_stream.reset();
  if (on_host(unit)) host_->take_gradient(unit, gradient, parameters_->shard(unit));
}

void ZeroEngine::measure(const at::Tensor& loss_sum, double weight, std::span<const double> figures) {
  gradients_.finish_step();
  loss_weight_ = weight;
  if (measuring_stream_) {
    c10::Event measured(options_.device.type());
    measured.record(*measuring_stream_);
    measured.block(current_stream(options_.device));
  }
  at::Tensor squares = partial_squares_.sum();
  // If states are not sharded, every rank has counted the full gradient.
  if (layouts_.front().num_shards() == 1) squares.div_(levels_.layout().ranks());
  const auto length = static_cast<int64_t>(kOwnTotals + figures.size());
  const auto pinned = at::TensorOptions().dtype(at::kDouble).pinned_memory(options_.device.is_cuda());
  at::Tensor totals = at::stack({squares, loss_sum.to(at::kDouble)});
  if (!figures.empty()) {
    // Separate memory for each step, because the copy is asynchronous.
    const at::Tensor sent = at::empty({static_cast<int64_t>(figures.size())}, pinned);
    std::copy(figures.begin(), figures.end(), sent.data_ptr<double>());
    totals = at::cat({totals, sent.to(options_.device, /*non_blocking=*/true)});
  }
  if (totals_.numel() != length) totals_ = at::zeros({length}, pinned);
  sum_over_ranks(totals);
  totals_.copy_(totals, /*non_blocking=*/true);
  if (!has_streams(options_.device)) return;
  totals_arrived_.record(current_stream(options_.device));
  clipping_scale_out(gradient_scale_, totals, options_.gradient_clipping);
}

void ZeroEngine::sum_over_ranks(const at::Tensor& tensor) {
  if (levels_.has_peers()) levels_.intra_node().all_reduce_sum(tensor)->wait();
  if (!levels_.has_nodes()) return;
  // Gather, then add in node order: communicators with different indices may sum in different orders.
  const int nodes = levels_.layout().nodes;
  const at::Tensor of_nodes = at::empty({nodes * tensor.numel()}, tensor.options());
  levels_.inter_node().all_gather(tensor.reshape({-1}), of_nodes)->wait();
  tensor.copy_(of_nodes.view({nodes, tensor.numel()}).sum(0).view(tensor.sizes()));
}

StepSummary ZeroEngine::summary() {
  if (has_streams(options_.device)) totals_arrived_.synchronize();
  const double* values = totals_.const_data_ptr<double>();
  return {.loss = values[1] / loss_weight_,
          .grad_norm = std::sqrt(values[0]),
          .figures = {values + kOwnTotals, static_cast<size_t>(totals_.numel()) - kOwnTotals}};
}

void ZeroEngine::update(double lr, int64_t update) {
  AdamWUpdate step = scalars(lr, update);
  if (options_.device.is_cuda()) step.device_gradient_scale = gradient_scale_.const_data_ptr<float>();
  if (host_ || options_.device.is_cpu()) {
    const StepSummary measured = summary();
    if (!std::isfinite(measured.loss) || !std::isfinite(measured.grad_norm)) {
      if (host_) host_->discard();
      return;
    }
    const double squares = totals_.const_data_ptr<double>()[0];
    step.gradient_scale = static_cast<float>(clipping_scale(squares, options_.gradient_clipping));
    last_was_clipped_ = step.gradient_scale != 1.0F;
  }
  parameters_->invalidate();
  if (host_) {
    host_->finish(step);
    if (!options_.overlap) host_->wait_for_all();
  }
  for (size_t u = 0; u < units_.size(); ++u) {
    if (is_frozen(u)) {
      parameters_->keep(u);
      continue;
    }
    if (!on_host(u)) {
      const ProfileRange range("optimizer", units_[u].name);
      shards_[u].update(step, gradients_.shard(u), parameters_->shard(u));
    }
    publish(u);
  }
}

void ZeroEngine::set_host_ratio(double ratio) {
  if (!host_) return;
  host_->wait_for_all();
  const std::vector<bool> stays = units_on_host(units_, ratio);
  for (size_t u = 0; u < units_.size(); ++u) {
    if (!on_host(u) || stays[u]) continue;
    if (releases_gradients(options_))
      throw_failure("unit {} cannot be moved to the device because its gradients have been released", units_[u].name);
    host_->release(u);
    shards_[u].move_to(options_.device);
  }
  if (std::none_of(stays.begin(), stays.end(), [](bool unit_stays) { return unit_stays; })) host_.reset();
}

GradientTarget ZeroEngine::gradient_target(const ZeroOptions& options, const ParallelLayout& ranks) {
  return GradientStore::target(ranks, gradient_options(options));
}

std::vector<bool> ZeroEngine::units_in_codes(const std::vector<UnitSpec>& units, const ZeroOptions& options,
                                             const ParallelLayout& ranks) {
  return parallel::units_in_codes(make_layouts(units, options, ranks), ranks, parameter_options(options));
}

MemoryUse ZeroEngine::memory_use() const {
  MemoryUse use = parameters_->memory_use();
  use += gradients_.memory_use();
  for (const OptimizerShard& shard : shards_) use += shard.memory_use();
  if (host_) use += host_->memory_use();
  return use;
}

}  // namespace mpzero::parallel
