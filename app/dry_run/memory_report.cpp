#include "app/dry_run/memory_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "app/gpu/nvml.hpp"
#include "app/machine/host_limits.hpp"
#include "app/memory/memory_estimate.hpp"
#include "app/memory/memory_limit.hpp"
#include "base/words.hpp"

namespace mpzero {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

MemoryEstimate estimate_of(const RunSetup& setup, bool on_gpus) {
  return {setup.config, setup.model, at::Device(on_gpus ? at::kCUDA : at::kCPU), setup.layout, setup.peer_gpus};
}

// Formats the size of activations and workspace. With --recompute auto, the size depends on available GPU memory.
std::string activations(const MemoryEstimate& estimate, const RunConfig& config, int64_t least) {
  if (config.recompute != Recomputation::kAuto) return gibibytes(least);
  const ActivationSizes sizes = estimate.activation_sizes(config.micro_batch_size);
  const int64_t most = activation_peak({{model::Recompute::kNone, std::ssize(sizes.layers)}}, sizes);
  return fmt::format("{} to {} (--recompute auto)", gibibytes(least), gibibytes(most));
}

std::vector<std::string> device_lines(const parallel::MemoryUse& use, const std::string& activations) {
  return {
      fmt::format("  parameters {}, gradients {}{}, optimizer states {}, units in flight {}", gibibytes(use.parameters),
                  gibibytes(use.gradients),
                  use.host_gradients > 0 ? fmt::format(" (copied to the host: {})", gibibytes(use.host_gradients)) : "",
                  gibibytes(use.optimizer_states), gibibytes(use.units_in_flight)),
      fmt::format("  activations and workspace {}", activations)};
}

}  // namespace

MachineMemory this_machine() {
  MachineMemory machine{.gpus = 0, .smallest_gpu = std::nullopt, .host = available_host_bytes()};
  const doctor::GpuSurvey survey = doctor::survey_gpus({"libnvidia-ml.so.1"});
  machine.gpus = static_cast<int>(survey.gpus.size());
  if (!survey.gpus.empty()) machine.gpu_name = survey.gpus.front().name;
  for (const doctor::GpuState& gpu : survey.gpus) {
    if (!gpu.total_memory) continue;
    const auto total = static_cast<int64_t>(*gpu.total_memory);
    machine.smallest_gpu = std::min(machine.smallest_gpu.value_or(total), total);
    machine.gpu_used = std::max(machine.gpu_used, static_cast<int64_t>(gpu.used_memory.value_or(0)));
  }
  return machine;
}

bool can_be_host_of(const MachineMemory& machine, const DryRunRanks& ranks) {
  return machine.gpus >= ranks.per_host && machine.smallest_gpu.has_value();
}

MemoryNeed memory_limit(const DryRunRanks& ranks, const MachineMemory& machine, bool on_gpus) {
  const bool is_host = on_gpus ? can_be_host_of(machine, ranks) : ranks.started || ranks.world_size == ranks.per_host;
  if (!is_host) return {.device = kUnlimited, .host = kUnlimited};
  if (!on_gpus) return memory_limit({.gpu = std::nullopt, .host = machine.host, .ranks = ranks.per_host});
  return memory_limit(
      {.gpu = machine.smallest_gpu, .gpu_used = machine.gpu_used, .host = machine.host, .ranks = ranks.per_host});
}

std::vector<std::string> memory_report(const RunSetup& setup, const DryRunRanks& ranks, bool on_gpus,
                                       const MemoryNeed& limit, std::optional<bool> release) {
  MemoryEstimate estimate = estimate_of(setup, on_gpus);
  estimate.choose_release(limit, release);
  const parallel::MemoryUse use = estimate.states_of(estimate.scenario());
  std::vector<std::string> lines;
  const auto add = [&](const std::vector<std::string>& more) { lines.insert(lines.end(), more.begin(), more.end()); };
  if (limit.host == kUnlimited) {
    lines.emplace_back(
        "Memory not checked: the hosts are unknown. If memory is insufficient, the run may choose another layout "
        "or more recomputation.");
  }
  if (on_gpus) {
    MemoryScenario now = estimate.scenario();
    now.may_release_gradients = false;  // chosen above
    const MemoryNeed need = estimate.need_within(limit, now);
    lines.push_back(fmt::format("Memory per GPU: at least {}, plus CUDA and NCCL", gibibytes(need.device)));
    add(device_lines(use, activations(estimate, setup.config, need.device - device_bytes(use))));
    lines.push_back(fmt::format("Memory per host: {} for {}{}", gibibytes(need.host * ranks.per_host),
                                counted(ranks.per_host, "rank"), need.host == 0 ? ", without offloading" : ""));
    return lines;
  }
  const int64_t states = device_bytes(use), available = tensors_within(limit.host);
  const ActivationSizes sizes = estimate.activation_sizes(setup.config.micro_batch_size);
  const LayerLevels levels = estimate.levels_within(sizes, available - states);
  const int64_t in_use = activation_peak(levels, sizes), process = process_bytes(states + in_use);
  const bool fits = process <= limit.host;
  const auto [of_host, given] =
      compared_sizes(process * ranks.per_host, fits ? 0 : std::max<int64_t>(0, limit.host) * ranks.per_host);
  lines.push_back(fmt::format("Memory per host (CPU run): about {} for {}{}; per rank:", of_host,
                              counted(ranks.per_host, "rank"),
                              fits ? "" : fmt::format(", more than the {} available", given)));
  add(device_lines(use, fmt::format("{} (recompute {})", gibibytes(in_use), describe(levels))));
  return lines;
}

std::optional<std::string> memory_problem(const RunSetup& setup, const DryRunRanks& ranks,
                                          const MachineMemory& machine) {
  if (!can_be_host_of(machine, ranks)) return std::nullopt;
  const MemoryEstimate estimate = estimate_of(setup, /*on_gpus=*/true);
  const MemoryNeed limit{.device = *machine.smallest_gpu, .host = machine.host / ranks.per_host};
  const MemoryNeed need = estimate.need_within(limit, estimate.scenario(), 0);
  if (need.device > limit.device) {
    const auto changes =
        changes_that_fit(estimate.scenario(), ranks.world_size, limit,
                         [&](const MemoryScenario& changed) { return estimate.need_within(limit, changed); });
    const auto [needed, given] = compared_sizes(need.device, *machine.smallest_gpu);
    return fmt::format("the run needs {} of GPU memory, but the GPU has only {}; {}", needed, given,
                       describe_changes(changes));
  }
  // A lower bound, since spare states are omitted if they do not fit.
  const int64_t host = need.host * ranks.per_host;
  if (host <= machine.host) return std::nullopt;
  const auto [needed, given] = compared_sizes(host, machine.host);
  return fmt::format(
      "the run does not fit in host memory: a host needs {} for {}, but this host has only {} available; use more "
      "hosts or ranks, {}, or raise the memory limit of the job or container",
      needed, counted(ranks.per_host, "rank"), given, ratio_remedy(setup.config));
}

}  // namespace mpzero
