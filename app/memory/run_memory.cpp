#include "app/memory/run_memory.hpp"

#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "app/config/model_limits.hpp"
#include "app/flags/training_flags.hpp"
#include "app/machine/device.hpp"
#include "app/machine/host_limits.hpp"
#include "app/memory/memory_limit.hpp"
#include "base/collectives.hpp"
#include "base/words.hpp"
#include "parallel/comm/gpu_address.hpp"

namespace mpzero {
namespace {

struct Part {
  std::string name;
  int64_t bytes;
  std::string note;
};

std::vector<Part> device_parts(const parallel::MemoryUse& states, const LayerLevels& levels,
                               const ActivationSizes& sizes, int64_t context, const MemoryEstimate& estimate) {
  const int64_t kept = kept_activations(levels, sizes), casts = estimate.cast_bytes(estimate.kept_casts());
  std::vector<Part> parts{{"parameters", states.parameters, ""},
                          {"gradients", states.gradients,
                           states.host_gradients > 0          ? "copied to the host"
                           : states.host_optimizer_states > 0 ? "kept until the update"
                                                              : ""},
                          {"optimizer states", states.optimizer_states, ""},
                          {"units in flight", states.units_in_flight, ""},
                          {"activations", kept, fmt::format("recompute {}", describe(levels))},
                          {"weights in FP8", casts, fmt::format("{} layers", estimate.kept_casts())},
                          {"workspace", activation_peak(levels, sizes) - kept - casts, ""},
                          {"CUDA and NCCL", context, ""}};
  std::erase_if(parts, [](const Part& part) { return part.bytes == 0; });
  return parts;
}

std::string first_line(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

RunMemory::RunMemory(const RunSetup& setup, at::Device device, const parallel::MpiRuntime& mpi)
    : config_(setup.config),
      device_(device),
      world_size_(mpi.world_size()),
      estimate_(setup.config, setup.model, device, setup.layout, setup.peer_gpus),
      local_size_(mpi.local_size()),
      host_at_start_(available_host_bytes()),
      host_available_(within_host_margin(host_at_start_) / mpi.local_size()) {
  if (device.is_cpu()) return;
  at_start_ = gpu_memory(device);
  refused_.emplace(device);
}

void RunMemory::check_micro_batch(ProcessGroup& group) const {
  const int64_t host = min(group, host_available_);
  const int64_t device = device_.is_cpu() ? host : min(group, at_start_.total);
  const ActivationSizes sizes = estimate_.activation_sizes(config_.micro_batch_size);
  const auto activations = static_cast<double>(activation_peak(estimate_.leanest(config_.recompute), sizes));
  const double tokens = loader_bytes(config_);
  const double on_host = tokens + (device_.is_cpu() ? activations : 0.0);
  const auto refuse = [&](const char* memory, double bytes, int64_t limit) {
    const auto [needed, available] = compared_sizes(static_cast<int64_t>(bytes), limit);
    throw UserError(
        fmt::format("the run does not fit in {} memory: a micro-batch of {} sequences x {} tokens needs at least {}, "
                    "but a rank has {}; lower train_micro_batch_size_per_gpu or --seq_length",
                    memory, config_.micro_batch_size, config_.seq_length, needed, available),
        ErrorScope::kAllRanks);
  };
  if (on_host > static_cast<double>(host)) refuse("host", on_host, host);
  if (activations > static_cast<double>(device)) refuse("GPU", activations, device);
}

std::vector<MemoryChange> RunMemory::changes(int64_t device_limit) const {
  const MemoryNeed limit{.device = device_limit, .host = host_available_};
  return changes_that_fit(estimate_.scenario(), world_size_, limit, [&](const MemoryScenario& changed) {
    const bool as_planned = plan_ && changed.recompute == config_.recompute;
    return as_planned ? estimate_.need(changed, plan_->levels) : estimate_.need_within(limit, changed);
  });
}

parallel::MemoryUse RunMemory::states() const {
  return plan_ ? plan_->states : estimate_.states_of(estimate_.scenario());
}

LayerLevels RunMemory::levels() const { return plan_ ? plan_->levels : estimate_.leanest(config_.recompute); }

void RunMemory::prepare_changes() const {
  try {
    changes(/*device_limit=*/0);  // with this limit, no alternative fits, so all are planned
  } catch (const std::exception&) {
    // Only an error message needs the alternatives, which are then planned again.
  }
}

int64_t RunMemory::host_budget(const parallel::MemoryUse& states, ProcessGroup& group) const {
  if (!estimate_.may_offload_activations()) return 0;
  return std::max<int64_t>(0, min(group, host_available_ - host_bytes(states)));
}

LayerLevels RunMemory::expected_levels(const parallel::MemoryUse& states, const ActivationSizes& sizes,
                                       ProcessGroup& group) const {
  return estimate_.levels_within(sizes, expected_limit(group).device - device_bytes(states),
                                 host_budget(states, group));
}

MemoryNeed RunMemory::expected_limit(ProcessGroup& group) const {
  const MemoryNeed limit = memory_limit({.gpu = at_start_.total, .gpu_used = at_start_.outside_allocator()});
  return {.device = min(group, limit.device), .host = min(group, host_available_)};
}

bool RunMemory::choose_release(ProcessGroup& group, std::optional<bool> preferred) {
  return !device_.is_cpu() && estimate_.choose_release(expected_limit(group), preferred);
}

int64_t RunMemory::planned_bytes() const {
  return device_bytes(states()) + activation_peak(levels(), estimate_.activation_sizes(config_.micro_batch_size));
}

std::string RunMemory::recompute() const {
  const std::string text = describe(levels());
  return text.find(',') == std::string::npos ? text.substr(0, text.find(' ')) : text;
}

std::vector<model::Recompute> RunMemory::plan(const parallel::MemoryUse& states, ProcessGroup& group) {
  const ActivationSizes sizes = estimate_.activation_sizes(config_.micro_batch_size);
  const int64_t on_host = config_.recompute == Recomputation::kAuto ? host_budget(states, group) : 0;
  Plan plan{.states = states, .levels = {}};
  if (device_.is_cpu()) {
    plan.process = min(group, host_available_);
    plan.available = tensors_within(plan.process);
    // All ranks must use the same levels, because the levels determine the collectives. Buffer sizes may differ by
    // rank.
    plan.levels = broadcast(group, estimate_.levels_within(sizes, plan.available - device_bytes(states)));
    estimate_.keep_casts(estimate_.kept_casts_within(std::numeric_limits<int64_t>::max()));
  } else {
    const GpuMemory now = gpu_memory(device_);
    plan.registered = std::max<int64_t>(0, device_bytes(states) - now.allocated);
    plan.context = std::max<int64_t>(0, now.outside_allocator() - plan.registered);
    plan.available = min(group, now.total - plan.context);
    // All ranks must use the same levels.
    const int64_t room = min(group, plan.available - device_bytes(states));
    const int64_t within_margin = room - memory_margin(plan.available);
    plan.levels = estimate_.levels_within(sizes, within_margin, on_host);
    if (config_.recompute == Recomputation::kAuto && activation_peak(plan.levels, sizes) > room) {
      const auto [needed, available] = compared_sizes(planned_bytes(), plan.available);
      throw UserError(
          fmt::format("the run does not fit: it needs at least {} of GPU memory, but a GPU has {} available; {}",
                      needed, available, describe_changes(changes(plan.available - memory_margin(plan.available)))),
          ErrorScope::kAllRanks);
    }
    // Activations have priority, because recomputation costs more than casting weights again.
    estimate_.keep_casts(estimate_.kept_casts_within(within_margin - activation_peak(plan.levels, sizes)));
  }
  plan_ = plan;
  if (device_.is_cuda()) prepare_changes();  // the number of kept casts may have changed
  return by_layer(plan.levels);
}

std::optional<int64_t> RunMemory::host_extra_bytes(ProcessGroup& group) const {
  if (device_.is_cpu()) return std::nullopt;
  prepare_changes();
  const parallel::MemoryUse use = estimate_.states_of(estimate_.scenario(), 0);
  const ActivationSizes sizes = estimate_.activation_sizes(config_.micro_batch_size);
  const int64_t activations = host_activations(expected_levels(use, sizes, group), sizes);
  const int64_t needed = host_bytes(use) + activations;
  if (needed == 0) return std::nullopt;
  const int64_t left = min(group, host_available_) - needed;
  run_on_all_ranks(group, [&] {
    if (left >= 0) return;
    const auto [of_host, available] =
        compared_sizes(needed * local_size_, std::max<int64_t>(0, (left + needed) * local_size_));
    throw_user_error(
        "the run does not fit in host memory: a rank needs {} (optimizer states {}, parameters {}, gradients {}, "
        "transfer buffers {}, activations {}), a host needs {} for {}, but {} is available; use more "
        "hosts or ranks, {}, or raise the memory limit of the job or container",
        gibibytes(needed), gibibytes(use.host_optimizer_states), gibibytes(use.host_parameters),
        gibibytes(use.host_gradients), gibibytes(use.host_staging), gibibytes(activations), of_host,
        counted(local_size_, "rank"), available,
        config_.recompute == Recomputation::kHostAttention ? "use --recompute host or full"
        : config_.recompute == Recomputation::kHost        ? "use --recompute full" + yields_for(config_, {"recompute"})
        : config_.zero.release_gradients.value_or(false)   ? "remove \"release_gradients\" from offload_optimizer"
                                                           : ratio_remedy(config_));
  });
  if (host_bytes(estimate_.states_of(estimate_.scenario())) - host_bytes(use) <= left) return std::nullopt;
  return left;
}

int64_t RunMemory::measured_spare(ProcessGroup& group) const {
  const int64_t left = plan_->available - memory_margin(plan_->available) - peak().total;
  return std::max<int64_t>(0, min(group, left));
}

int64_t RunMemory::spare() const {
  return std::max<int64_t>(0, plan_->available - memory_margin(plan_->available) - planned_bytes());
}

void RunMemory::states_have_grown(const parallel::MemoryUse& states) {
  if (world_size_ > 1) plan_->registered += device_bytes(states) - device_bytes(plan_->states);
  plan_->states = states;
}

std::vector<std::string> RunMemory::breakdown() const {
  if (!plan_) return {};
  if (device_.is_cpu()) {
    if (config_.recompute != Recomputation::kAuto || recompute() == "none") return {};
    return {fmt::format("Planned memory, per rank: {} of {} available (recompute {})",
                        gibibytes(process_bytes(planned_bytes())), gibibytes(plan_->process), describe(levels()))};
  }
  const ActivationSizes sizes = estimate_.activation_sizes(config_.micro_batch_size);
  std::vector<std::string> lines{fmt::format("Planned GPU memory, per GPU of {} x {}:", world_size_,
                                             parallel::gpu_properties(device_.index()).name)};
  for (const Part& part : device_parts(plan_->states, plan_->levels, sizes, plan_->context, estimate_)) {
    lines.push_back(fmt::format("  {:<18}{:>12}{}", part.name, gibibytes(part.bytes),
                                part.note.empty() ? "" : fmt::format("  ({})", part.note)));
  }
  lines.push_back(fmt::format("  {:<18}{:>12}  of {}", "total", gibibytes(planned_bytes() + plan_->context),
                              gibibytes(at_start_.total)));
  const parallel::MemoryUse& states = plan_->states;
  if (host_bytes(states) > 0) {
    lines.push_back(fmt::format(
        "Host memory, per rank: optimizer states {}, spare states for early updates {}; {}parameters {}, gradients {}, "
        "transfer buffers {}",
        gibibytes(states.host_optimizer_states), gibibytes(states.host_spares),
        config_.zero.pin_memory ? "pinned: " : "", gibibytes(states.host_parameters), gibibytes(states.host_gradients),
        gibibytes(states.host_staging)));
  }
  if (const int64_t activations = host_activations(plan_->levels, sizes); activations > 0) {
    const int64_t inputs = host_inputs(plan_->levels, sizes);
    lines.push_back(fmt::format("Host memory, per rank: layer inputs {}, attention outputs {}{}", gibibytes(inputs),
                                gibibytes(activations - inputs), config_.zero.pin_memory ? ", pinned" : ""));
  }
  return lines;
}

std::optional<std::string> RunMemory::warning() const {
  const bool fits = !plan_ || planned_bytes() <= plan_->available;
  if (fits && device_.is_cpu() && offloads_activations(config_.recompute)) {
    const Origin& origin = config_.origins.of("recompute");
    return fmt::format(
        "{} is equivalent to --recompute tiled on the CPU, where all activations are in host memory",
        origin.kind == Origin::Kind::kFile ? origin.name : "--recompute " + flag_named("recompute").show(config_));
  }
  if (fits) return std::nullopt;
  if (device_.is_cpu()) {
    const auto [needed, available] =
        compared_sizes(process_bytes(planned_bytes()), std::max<int64_t>(0, plan_->process));
    return fmt::format(
        "a rank needs about {} of memory, but {} is available, so the OOM killer may terminate the run; {}", needed,
        available, describe_changes(changes(plan_->available)));
  }
  const auto [needed, available] = compared_sizes(planned_bytes(), plan_->available);
  return fmt::format("the plan needs {} of GPU memory, but a GPU has {} available; {}", needed, available,
                     describe_changes(changes(plan_->available - memory_margin(plan_->available))));
}

std::optional<int64_t> RunMemory::planned() const {
  return device_.is_cpu() || !plan_ ? std::nullopt : std::optional(planned_bytes());
}

int64_t RunMemory::host_after_growth() const {
  const int64_t growth = device_.is_cpu() ? process_bytes(planned_bytes()) - peak().total : 0;
  return available_host_bytes() - local_size_ * std::max<int64_t>(0, growth);
}

PeakMemory RunMemory::peak() const {
  PeakMemory peak{.total = peak_memory_bytes(device_), .allocated = std::nullopt};
  if (device_.is_cpu()) {
    peak.allocated = peak_allocated_bytes(device_);
    return peak;
  }
  const int64_t registered = plan_ ? plan_->registered : 0;
  peak.total += registered;
  peak.allocated = peak_allocated_bytes(device_) + registered;
  return peak;
}

std::optional<std::string> RunMemory::comparison() const {
  if (!plan_) return std::nullopt;
  const PeakMemory measured = peak();
  if (device_.is_cpu()) {
    return fmt::format("Peak memory: planned {}, measured {} (tensors; process: {})", gibibytes(planned_bytes()),
                       gibibytes(measured.allocated.value_or(0)), gibibytes(measured.total));
  }
  const double fragmentation = 1 - static_cast<double>(measured.allocated.value_or(0)) /
                                       static_cast<double>(std::max<int64_t>(1, measured.total));
  return fmt::format("Peak memory: planned {}, measured {} (allocated; reserved {}, fragmentation {:.1f}%)",
                     gibibytes(planned_bytes()), gibibytes(measured.allocated.value_or(0)), gibibytes(measured.total),
                     100 * fragmentation);
}

std::string RunMemory::explain_out_of_memory(const std::exception& error) const {
  const int64_t context = plan_ ? plan_->context : at_start_.outside_allocator();
  const int64_t planned = planned_bytes();
  const int64_t available = plan_ ? plan_->available : at_start_.total - context;
  int64_t limit = available - memory_margin(available);
  std::string what = first_line(error);
  if (refused_ && refused_->last()) {
    const RefusedAllocation& refused = *refused_->last();
    what = fmt::format("{} requested, {} of {} free, {} in tensors", gibibytes(refused.asked), gibibytes(refused.free),
                       gibibytes(refused.total), gibibytes(refused.allocated));
    // A suggested change must save at least the bytes of the failed allocation.
    limit = std::min(limit, planned - refused.asked);
  }
  std::vector<std::string> parts;
  for (const Part& part :
       device_parts(states(), levels(), estimate_.activation_sizes(config_.micro_batch_size), context, estimate_)) {
    parts.push_back(fmt::format("{} {}{}", part.name, gibibytes(part.bytes),
                                part.note.empty() ? "" : fmt::format(" ({})", part.note)));
  }
  return fmt::format("out of GPU memory while {}: {}; planned: {}, {} in total; {}",
                     plan_ ? "training" : "allocating the training state", what, fmt::join(parts, ", "),
                     gibibytes(planned + context), describe_changes(changes(limit)));
}

MemoryNeed memory_limit(at::Device device, parallel::MpiRuntime& mpi) {
  MachineSizes machine{.gpu = std::nullopt, .host = available_host_bytes(), .ranks = mpi.local_size()};
  if (device.is_cuda()) {
    const GpuMemory now = gpu_memory(device);
    machine.gpu = now.total;
    machine.gpu_used = now.outside_allocator();
  }
  const MemoryNeed limit = memory_limit(machine);
  return {.device = min(mpi, limit.device), .host = min(mpi, limit.host)};
}

}  // namespace mpzero
