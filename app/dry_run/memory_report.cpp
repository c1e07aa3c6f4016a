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
  return memory_room({.gpu = on_gpus ? machine.smallest_gpu : std::nullopt,
                      .gpu_used = machine.gpu_used,
                      .host = machine.host,
                      .ranks = ranks.per_host})
      .limit();
}

std::vector<std::string> memory_report(const RunSetup& setup, const DryRunRanks& ranks, bool on_gpus,
                                       const MemoryNeed& limit, std::optional<bool> release) {
  MemoryEstimate estimate = estimate_of(setup, on_gpus);
  estimate.choose_release(limit, release);
  const bool is_known = limit.host < kUnlimited;
  const parallel::MemoryUse states = estimate.states_of(estimate.scenario(), estimate.host_extra_bytes(limit));
  const int64_t least = estimate.planned(states, estimate.leanest(setup.config.recompute)).need().device;
  const PlannedMemory memory = estimate.plan(states, limit);
  const MemoryNeed need = memory.need();
  // If the limit is unknown, recomputation may reduce the memory to `low`.
  const auto range = [&](int64_t low, const std::string& high) {
    return is_known || gibibytes(low) == high ? high : gibibytes(low) + " to " + high;
  };
  const std::string of_ranks = counted(ranks.per_host, "rank");
  std::vector<PlannedMemory::Part> parts = memory.device_parts();
  std::vector<std::string> lines;
  if (!is_known) {
    lines.emplace_back(
        "Memory not checked, because the hosts are unknown: the run may choose a different layout or more "
        "recomputation.");
  }
  if (on_gpus) {
    lines.push_back(fmt::format("Memory per GPU: {}, plus CUDA and NCCL", range(least, gibibytes(need.device))));
    lines.push_back("  " + describe(parts));
    lines.push_back(fmt::format("Memory per host: {} for {}{}", gibibytes(need.host * ranks.per_host), of_ranks,
                                need.host == 0 ? ", without offloading" : ""));
    return lines;
  }
  const int64_t process = process_bytes(need.device);
  const bool fits = process <= limit.host;
  const auto [of_host, given] =
      compared_sizes(process * ranks.per_host, fits ? 0 : std::max<int64_t>(0, limit.host) * ranks.per_host);
  lines.push_back(fmt::format(
      "Memory per host (CPU run): about {} for {}{}; per rank:", range(process_bytes(least) * ranks.per_host, of_host),
      of_ranks, fits ? "" : fmt::format(", more than the {} available", given)));
  parts.push_back({"program and caches", process - need.device});
  lines.push_back("  " + describe(parts));
  return lines;
}

std::optional<std::string> memory_problem(const RunSetup& setup, const DryRunRanks& ranks,
                                          const MachineMemory& machine) {
  if (!can_be_host_of(machine, ranks)) return std::nullopt;
  // Includes the context and the margin, so that only runs that cannot start are refused.
  const MemoryRoom room{.available = {.device = *machine.smallest_gpu, .host = machine.host / ranks.per_host},
                        .ranks = ranks.per_host};
  MemoryEstimate estimate = estimate_of(setup, /*on_gpus=*/true);
  estimate.choose_release(room.limit());
  // Spare states are omitted if they do not fit.
  const PlannedMemory memory = estimate.plan(estimate.states_of(estimate.scenario(), 0), room.limit());
  const MemoryNeed need = memory.need();
  if (need.device <= room.available.device && need.host <= room.available.host) return std::nullopt;
  return estimate.problem(memory, room);
}

}  // namespace mpzero
