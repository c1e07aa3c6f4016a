#include "app/memory/run_memory.hpp"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

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
        fmt::format("the run does not fit in {} memory: a micro-batch of {} x {} tokens needs at least {}, "
                    "but a rank has {}; lower train_micro_batch_size_per_gpu or --seq_length",
                    memory, counted(config_.micro_batch_size, "sequence"), config_.seq_length, needed, available),
        ErrorScope::kAllRanks);
  };
  if (on_host > static_cast<double>(host)) refuse("host", on_host, host);
  if (activations > static_cast<double>(device)) refuse("GPU", activations, device);
}

std::vector<MemoryChange> RunMemory::changes(int64_t device_limit) const {
  return estimate_.changes({.device = device_limit, .host = host_available_},
                           plan_ ? std::optional(plan_->memory.levels) : std::nullopt);
}

PlannedMemory RunMemory::memory() const {
  if (plan_) return plan_->memory;
  return estimate_.planned(estimate_.states_of(estimate_.scenario()), estimate_.leanest(config_.recompute));
}

std::vector<PlannedMemory::Part> RunMemory::device_parts() const {
  std::vector<PlannedMemory::Part> parts = memory().device_parts();
  parts.push_back({"CUDA and NCCL", plan_ ? plan_->room.context : at_start_.outside_allocator()});
  return parts;
}

void RunMemory::prepare_changes() const {
  try {
    changes(/*device_limit=*/0);  // with this limit, no alternative fits, so all are planned
  } catch (const std::exception&) {
    // Only an error message needs the alternatives, which are then planned again.
  }
}

MemoryNeed RunMemory::expected_limit(ProcessGroup& group) const {
  const MemoryNeed limit = memory_room({.gpu = at_start_.total, .gpu_used = at_start_.outside_allocator()}).limit();
  return {.device = min(group, limit.device), .host = min(group, host_available_)};
}

bool RunMemory::choose_release(ProcessGroup& group, std::optional<bool> preferred) {
  return !device_.is_cpu() && estimate_.choose_release(expected_limit(group), preferred);
}

std::string RunMemory::recompute() const {
  const std::string text = describe(plan_->memory.levels);
  return text.find(',') == std::string::npos ? text.substr(0, text.find(' ')) : text;
}

std::vector<model::Recompute> RunMemory::plan(const parallel::MemoryUse& states, ProcessGroup& group) {
  Plan plan{.memory = {}, .room = {.available = {.host = min(group, host_available_)}, .ranks = local_size_}};
  MemoryRoom& room = plan.room;
  if (device_.is_cpu()) {
    room.available.device = tensors_within(room.available.host);
  } else {
    const GpuMemory now = gpu_memory(device_);
    plan.registered = std::max<int64_t>(0, device_bytes(states) - now.allocated);
    room.context = std::max<int64_t>(0, now.outside_allocator() - plan.registered);
    room.available.device = min(group, now.total - room.context);
    room.margin = memory_margin(room.available.device);
  }
  // All ranks must use the same levels, because the levels determine the collectives. Buffer sizes may differ by rank.
  const int64_t left = min(group, room.available.device - device_bytes(states));
  const int64_t left_on_host = min(group, host_available_ - host_bytes(states));
  plan.memory = estimate_.plan(
      states, {.device = device_bytes(states) + left - room.margin, .host = host_bytes(states) + left_on_host});
  if (device_.is_cuda() && config_.recompute == Recomputation::kAuto &&
      plan.memory.need().device - device_bytes(states) > left) {
    throw UserError(estimate_.problem(plan.memory, room), ErrorScope::kAllRanks);
  }
  plan_ = plan;
  if (device_.is_cuda()) prepare_changes();  // the number of kept casts may have changed
  return by_layer(plan.memory.levels);
}

std::optional<int64_t> RunMemory::host_extra_bytes(ProcessGroup& group) const {
  if (device_.is_cpu()) return std::nullopt;
  prepare_changes();
  const MemoryNeed limit = expected_limit(group);
  const parallel::MemoryUse least = estimate_.states_of(estimate_.scenario(), 0);
  const PlannedMemory memory = estimate_.planned(least, estimate_.levels_beside(least, limit));
  run_on_all_ranks(group, [&] {
    if (memory.need().host <= limit.host) return;
    throw UserError(estimate_.problem(memory, {.available = limit, .ranks = local_size_}));
  });
  return estimate_.host_extra_bytes(limit);
}

int64_t RunMemory::measured_spare(ProcessGroup& group) const {
  return std::max<int64_t>(0, min(group, plan_->room.limit().device - peak().total));
}

int64_t RunMemory::spare() const { return std::max<int64_t>(0, plan_->room.limit().device - planned_bytes()); }

void RunMemory::states_have_grown(const parallel::MemoryUse& states) {
  if (world_size_ > 1) plan_->registered += device_bytes(states) - device_bytes(plan_->memory.states);
  plan_->memory.states = states;
}

std::vector<std::string> RunMemory::breakdown() const {
  if (!plan_) return {};
  const PlannedMemory& memory = plan_->memory;
  if (device_.is_cpu()) {
    if (config_.recompute != Recomputation::kAuto || recompute() == "none") return {};
    return {fmt::format("Planned memory, per rank: {} of {} available (recompute {})",
                        gibibytes(process_bytes(planned_bytes())), gibibytes(plan_->room.available.host),
                        describe(memory.levels))};
  }
  std::vector<std::string> lines{fmt::format("Planned GPU memory, per GPU of {} x {}:", world_size_,
                                             parallel::gpu_properties(device_.index()).name)};
  for (const PlannedMemory::Part& part : device_parts()) {
    if (part.bytes == 0) continue;
    lines.push_back(fmt::format("  {:<18}{:>12}{}", part.name, gibibytes(part.bytes),
                                part.note.empty() ? "" : fmt::format("  ({})", part.note)));
  }
  lines.push_back(fmt::format("  {:<18}{:>12}  of {}", "total", gibibytes(planned_bytes() + plan_->room.context),
                              gibibytes(at_start_.total)));
  if (memory.need().host > 0) {
    lines.push_back("Host memory, per rank: " + describe(memory.host_parts()));
  }
  return lines;
}

std::optional<std::string> RunMemory::warning() const {
  const bool fits = !plan_ || planned_bytes() <= plan_->room.available.device;
  if (fits && device_.is_cpu() && offloads_activations(config_.recompute)) {
    const Origin& origin = config_.origins.of("recompute");
    return fmt::format(
        "{} is equivalent to --recompute tiled on the CPU, where all activations are in host memory",
        origin.kind == Origin::Kind::kFile ? origin.name : "--recompute " + flag_named("recompute").show(config_));
  }
  return fits ? std::nullopt : std::optional(estimate_.problem(plan_->memory, plan_->room));
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
  const std::vector<PlannedMemory::Part> parts = device_parts();
  const int64_t context = parts.back().bytes, planned = planned_bytes();
  const int64_t available = plan_ ? plan_->room.available.device : at_start_.total - context;
  int64_t limit = available - memory_margin(available);
  std::string what = first_line(error);
  if (refused_ && refused_->last()) {
    const RefusedAllocation& refused = *refused_->last();
    what = fmt::format("{} requested, {} of {} free, {} in tensors", gibibytes(refused.asked), gibibytes(refused.free),
                       gibibytes(refused.total), gibibytes(refused.allocated));
    // A suggested change must save at least the bytes of the failed allocation.
    limit = std::min(limit, planned - refused.asked);
  }
  return fmt::format("out of GPU memory while {}: {}; planned: {}, {} in total; {}",
                     plan_ ? "training" : "allocating the training state", what, describe(parts),
                     gibibytes(planned + context), describe_changes(changes(limit)));
}

MemoryNeed memory_limit(at::Device device, parallel::MpiRuntime& mpi) {
  const GpuMemory now = device.is_cuda() ? gpu_memory(device) : GpuMemory();
  const MemoryNeed limit = memory_room({.gpu = device.is_cuda() ? std::optional(now.total) : std::nullopt,
                                        .gpu_used = now.outside_allocator(),
                                        .host = available_host_bytes(),
                                        .ranks = mpi.local_size()})
                               .limit();
  return {.device = min(mpi, limit.device), .host = min(mpi, limit.host)};
}

}  // namespace mpzero
