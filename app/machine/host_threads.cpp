#include "app/machine/host_threads.hpp"

#include <ATen/cpu/Utils.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "app/machine/host_limits.hpp"
#include "base/collectives.hpp"
#include "base/host_name.hpp"
#include "base/text/number_ranges.hpp"
#include "parallel/comm/gpu_address.hpp"
#include "parallel/host/core_assignment.hpp"

namespace mpzero {
namespace {

// Returns the value of OMP_NUM_THREADS; 0 if unset or invalid.
int threads_asked_for() {
  const char* const text = std::getenv("OMP_NUM_THREADS");
  return text == nullptr ? 0 : std::max(0, std::atoi(text));
}

// Returns true if the ranks of this host are bound to different cores.
bool ranks_are_bound(const std::vector<int>& cores, parallel::MpiRuntime& mpi) {
  const std::pair mine(host_name(), cores);
  return std::ranges::any_of(all_gather(mpi, mine), [&](const auto& other) {
    return other.first == mine.first && other.second != mine.second;
  });
}

std::vector<int> assigned_cores(const parallel::CpuTopology& machine, at::Device device, parallel::MpiRuntime& mpi) {
  if (ranks_are_bound(machine.cores(), mpi)) return machine.cores();
  std::vector<std::vector<int>> near;
  for (const std::string& gpu : all_gather(*mpi.this_machine(), parallel::gpu_address(device.index()))) {
    near.push_back(machine.cores_near(gpu));
  }
  return parallel::divide_cores(machine.cores(), near)[static_cast<size_t>(mpi.local_rank())];
}

}  // namespace

parallel::HostUpdateOptions host_update_options(at::Device device, parallel::MpiRuntime& mpi) {
  if (device.is_cpu()) return {};
  parallel::HostUpdateOptions options;
  const auto machine = parallel::CpuTopology::of_this_machine();
  options.cores = machine.hardware_threads(parallel::cores_for_updates(assigned_cores(machine, device, mpi)));
  options.threads = std::max(1, static_cast<int>(options.cores.size()));
  if (const int allowed = allowed_cores(); allowed > 0) {
    options.threads = std::clamp(allowed / mpi.local_size(), 1, options.threads);
  }
  if (const int threads = threads_asked_for(); threads > 0) options.threads = threads;
  // If there are more threads than cores, the OS schedules the threads.
  if (static_cast<size_t>(options.threads) > options.cores.size()) {
    options.cores.clear();
  } else {
    options.cores.resize(static_cast<size_t>(options.threads));
  }
  return options;
}

std::vector<int> cores_for_checkpoints(at::Device device, parallel::MpiRuntime& mpi) {
  if (device.is_cpu()) return {};
  const std::vector<int> updates = host_update_options(device, mpi).cores;
  const auto machine = parallel::CpuTopology::of_this_machine();
  const std::vector<int> assigned = machine.hardware_threads(assigned_cores(machine, device, mpi));
  return updates.empty() ? updates : parallel::left_over(assigned, updates);
}

std::string describe(const parallel::HostUpdateOptions& options) {
  std::string text = fmt::format("{} thread{} per rank", options.threads, options.threads == 1 ? "" : "s");
  if (!options.cores.empty()) text += fmt::format(" (rank 0: hardware threads {})", number_ranges(options.cores));
  return text;
}

std::optional<std::string> slower_update(parallel::HostKernel kernel) {
  switch (kernel) {
    case parallel::HostKernel::kAvx512:
      return std::nullopt;
    case parallel::HostKernel::kAvx2:
      return "AdamW on the host uses AVX2 because rank 0's CPU lacks AVX-512";
    case parallel::HostKernel::kPortable:
      return "AdamW on the host is slow because rank 0's CPU has neither AVX-512 nor AVX2 with FMA";
  }
  return std::nullopt;
}

bool multiplies_bf16() {
  const auto known = at::cpu::get_cpu_capabilities();
  const auto has = [&](const char* name) { return known.contains(name) && known.at(name).toBool(); };
  return has("avx512_bf16") || has("amx_bf16");
}

std::optional<std::string> few_threads(const parallel::HostUpdateOptions& options, int local_size, int online) {
  const int used = options.threads * local_size;
  if (options.threads == 0 || 4 * used >= online || threads_asked_for() > 0) return std::nullopt;
  return fmt::format(
      "AdamW on the host is slow: the launcher allows only {} of the {} hardware threads on rank 0's host; use mpirun "
      "--bind-to none, or srun --cpu-bind=none and --cpus-per-task",
      used, online);
}

int online_hardware_threads() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

}  // namespace mpzero
