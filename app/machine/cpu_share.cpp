#include "app/machine/cpu_share.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include "app/machine/host_limits.hpp"
#include "app/machine/host_threads.hpp"
#include "base/collectives.hpp"
#include "base/text/number_ranges.hpp"
#include "base/words.hpp"

namespace mpzero {
namespace {

// Using fewer than 1/kFewPart of the host's hardware threads is probably unintended.
constexpr int kFewPart = 4;

// Returns 0 if the variable is unset, is not a positive number, or exceeds the range of int.
int positive_number(const parallel::Environment& environment, const char* name) {
  const std::string text = environment(name).value_or("");
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::max(0, number) : 0;
}

std::vector<int> domains_of(const std::vector<int>& cores, const std::vector<parallel::NumaDomain>& domains) {
  std::vector<int> numbers;
  for (const parallel::NumaDomain& domain : domains) {
    const bool has_one =
        std::ranges::any_of(cores, [&](int core) { return std::ranges::count(domain.cores, core) > 0; });
    if (has_one) numbers.push_back(domain.number);
  }
  return numbers;
}

// Returns text such as "cores 0-47 (NUMA domain 0)".
std::string describe_cores(const CpuShare& share) {
  return fmt::format("{} {} (NUMA {} {})", share.cores.size() == 1 ? "core" : "cores", number_ranges(share.cores),
                     share.domains.size() == 1 ? "domain" : "domains", number_ranges(share.domains));
}

// Returns the reason for not binding a rank with `threads` threads to its share of `cores` cores, which `ranks` ranks
// share; empty if the rank should be bound.
std::string reason_not_to_bind(size_t own_threads, int threads, size_t cores, size_t ranks, const CpuLimits& limits) {
  if (limits.bound_by) return fmt::format("because {} binds threads", *limits.bound_by);
  if (ranks > cores) return fmt::format("because the ranks share {}", counted(static_cast<int64_t>(cores), "core"));
  if (static_cast<size_t>(threads) > own_threads) return "because the ranks have more threads than the host";
  if (static_cast<size_t>(threads) < cores / ranks) {
    return fmt::format("because the ranks use {} of {} cores", static_cast<size_t>(threads) * ranks, cores);
  }
  return "";
}

}  // namespace

CpuLimits cpu_limits(const parallel::Environment& environment, int allowed_by_groups) {
  CpuLimits limits{.threads_asked_for = positive_number(environment, "OMP_NUM_THREADS"),
                   .threads_of_task = 0,
                   .threads_of_machine = allowed_by_groups,
                   .bound_by = std::nullopt,
                   .launched = environment("OMPI_COMM_WORLD_SIZE") || environment("SLURM_STEP_NUM_TASKS")};
  // Ranks started by mpirun within a job inherit srun's variables, but are not tasks of srun.
  if (!environment("OMPI_COMM_WORLD_SIZE") ||
      environment("SLURM_STEP_NUM_TASKS") == environment("OMPI_COMM_WORLD_SIZE")) {
    limits.threads_of_task = positive_number(environment, "SLURM_CPUS_PER_TASK");
  }
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"}) {
    if (environment(name) && !limits.bound_by) limits.bound_by = name;
  }
  return limits;
}

CpuShare share_cpu(const parallel::CpuTopology& machine, const std::vector<std::vector<int>>& cores_of_ranks,
                   int local_rank, const CpuLimits& limits) {
  const auto own_rank = static_cast<size_t>(local_rank);
  const std::vector<int>& cores = machine.cores();
  // Number of ranks with the same allowed cores, and this rank's index among them.
  size_t ranks = 0, index = 0;
  for (size_t rank = 0; rank < cores_of_ranks.size(); ++rank) {
    if (cores_of_ranks[rank] != cores_of_ranks[own_rank]) continue;
    if (rank < own_rank) ++index;
    ++ranks;
  }
  CpuShare share;
  share.threads = std::max(1, static_cast<int>(cores.size() / ranks));
  if (limits.threads_of_machine > 0) {
    share.threads = std::clamp(limits.threads_of_machine / static_cast<int>(cores_of_ranks.size()), 1, share.threads);
  }
  if (limits.threads_of_task > 0) share.threads = std::min(share.threads, limits.threads_of_task);
  if (limits.threads_asked_for > 0) share.threads = limits.threads_asked_for;

  if (ranks < cores_of_ranks.size()) {
    share.placement = CpuPlacement::kByLauncher;
    share.cores = cores;
  } else {
    share.cores =
        parallel::divide_cores(cores, parallel::cores_near_ranks(machine.domains(), static_cast<int>(ranks)))[index];
    share.reason =
        reason_not_to_bind(machine.hardware_threads(share.cores).size(), share.threads, cores.size(), ranks, limits);
    share.placement = share.reason.empty() ? CpuPlacement::kBound : CpuPlacement::kFree;
    if (share.placement == CpuPlacement::kFree) share.cores = cores;
  }
  share.domains = domains_of(share.cores, machine.domains());
  return share;
}

std::string describe_shares(const std::vector<std::pair<int, CpuShare>>& shares) {
  const CpuShare& first = shares.front().second;
  std::string text = fmt::format("CPU of rank 0's host: {} of {}", counted(static_cast<int64_t>(shares.size()), "rank"),
                                 counted(first.threads, "thread"));
  if (first.placement == CpuPlacement::kFree) {
    return fmt::format("{} on {}, not bound, {}", text, describe_cores(first), first.reason);
  }
  text += first.placement == CpuPlacement::kBound ? ", bound: " : ", bound by the launcher: ";
  for (size_t i = 0; i < shares.size(); ++i) {
    text += fmt::format("{}rank {} to {}", i == 0 ? "" : ", ", shares[i].first, describe_cores(shares[i].second));
  }
  return text;
}

std::optional<std::string> few_cores(const std::vector<std::pair<int, CpuShare>>& shares, int online,
                                     const CpuLimits& limits) {
  if (std::ranges::any_of(shares, [](const auto& one) { return one.second.cores.size() > 1; })) return std::nullopt;
  const CpuShare& first = shares.front().second;
  if (limits.bound_by) {
    if (online == 1 || first.threads > 1) return std::nullopt;
    return fmt::format(
        "{} bound each rank on rank 0's host ({} hardware threads) to one core before mpzero started, so each rank has "
        "one thread; unset it to let mpzero bind threads, or also set OMP_NUM_THREADS",
        *limits.bound_by, online);
  }
  // A limit is intended if several ranks have the same allowed cores, but mpirun's default binding may limit a single
  // rank.
  const bool alone = shares.size() == 1 && limits.launched;
  if (first.placement != CpuPlacement::kByLauncher && !alone) return std::nullopt;
  if (kFewPart * std::ssize(shares) > online) return std::nullopt;
  return fmt::format(
      "the launcher bound each rank on rank 0's host ({} hardware threads) to one core; use mpirun --bind-to none, or "
      "srun --cpu-bind=none and --cpus-per-task",
      online);
}

CpuHost CpuHost::of_this_machine() {
  return {.topology = parallel::CpuTopology::of_this_machine(),
          .limits = cpu_limits(parallel::process_environment, allowed_cores()),
          .online = online_hardware_threads()};
}

CpuUse share_cores(at::Device device, parallel::MpiRuntime& mpi, const CpuHost& host) {
  const parallel::CpuTopology& machine = host.topology;
  const std::unique_ptr<parallel::MpiRuntime> here = mpi.this_machine();
  CpuShare share = share_cpu(machine, all_gather(*here, machine.cores()), mpi.local_rank(), host.limits);
  if (host.limits.threads_asked_for == 0) host.set_threads(share.threads);
  if (!device.is_cpu()) return {};
  if (share.placement == CpuPlacement::kBound && !host.bind(machine, machine.hardware_threads(share.cores))) {
    share.placement = CpuPlacement::kFree;
    share.reason = "because the operating system rejected the CPU affinity";
  }
  std::vector<std::pair<int, CpuShare>> shares;
  for (const auto& [rank, threads, cores, domains, placement, reason] : all_gather(
           *here, std::tuple(mpi.rank(), share.threads, share.cores, share.domains, share.placement, share.reason))) {
    shares.emplace_back(
        rank,
        CpuShare{.threads = threads, .cores = cores, .domains = domains, .placement = placement, .reason = reason});
  }
  return {.line = describe_shares(shares), .warning = few_cores(shares, host.online, host.limits)};
}

}  // namespace mpzero
