#include <map>

#include "app/machine/cpu_share.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using parallel::CpuTopology;
using Cores = std::vector<int>;

// The shares of `ranks` ranks that may use all cores of a machine.
std::vector<std::pair<int, CpuShare>> share_out(const CpuTopology& machine, int ranks, const CpuLimits& limits = {}) {
  const std::vector<Cores> cores(static_cast<size_t>(ranks), machine.cores());
  std::vector<std::pair<int, CpuShare>> shares;
  for (int rank = 0; rank < ranks; ++rank) shares.emplace_back(rank, share_cpu(machine, cores, rank, limits));
  return shares;
}

parallel::Environment environment(const std::map<std::string, std::string>& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

}  // namespace

TEST_CASE("one rank per NUMA domain has a thread for each core and is bound to its domain") {
  // Two hardware threads of each core, the second ones numbered after all first ones.
  const auto machine = CpuTopology::synthetic("numa:2 core:3 pu:2(indexes=0,6,1,7,2,8,3,9,4,10,5,11)");
  const auto shares = share_out(machine, 2);
  CHECK(shares[1].second.threads == 3);
  CHECK(shares[1].second.cores == Cores{3, 4, 5});
  CHECK(shares[1].second.domains == Cores{1});
  CHECK(shares[1].second.placement == CpuPlacement::kBound);
  CHECK(describe_shares(shares) ==
        "CPU of rank 0's host: 2 ranks of 3 threads, bound: rank 0 to cores 0-2 (NUMA domain 0), rank 1 to cores 3-5 "
        "(NUMA domain 1)");
}

TEST_CASE("one rank gets all domains, and four ranks share two") {
  const auto machine = CpuTopology::synthetic("numa:2 core:4 pu:1");
  CHECK(describe_shares(share_out(machine, 1)) ==
        "CPU of rank 0's host: 1 rank of 8 threads, bound: rank 0 to cores 0-7 (NUMA domains 0-1)");
  const auto four = share_out(machine, 4);
  CHECK(four[2].second.cores == Cores{4, 5});
  CHECK(four[2].second.domains == Cores{1});
  CHECK(four[2].second.threads == 2);
  // Cores that do not divide evenly: as many threads on each rank.
  const auto three = share_out(machine, 3);
  for (const auto& [rank, share] : three) {
    CHECK(share.threads == 2);
    CHECK(share.placement == CpuPlacement::kBound);
  }
}

TEST_CASE("ranks that do not use all cores are not bound, because another run may use them") {
  const auto machine = CpuTopology::synthetic("numa:2 core:4 pu:2");
  const auto asked = share_out(machine, 2, {.threads_asked_for = 3});
  CHECK(asked[0].second.threads == 3);
  CHECK(describe_shares(asked) ==
        "CPU of rank 0's host: 2 ranks of 3 threads on cores 0,2,4,6,8,10,12,14 (NUMA domains 0-1), not bound, because "
        "the ranks use 6 of 8 cores");
  // A container's limit.
  const auto limited = share_out(machine, 2, {.threads_of_machine = 5});
  CHECK(limited[0].second.threads == 2);
  CHECK(limited[0].second.placement == CpuPlacement::kFree);
  CHECK(share_out(machine, 2, {.threads_of_machine = 1})[0].second.threads == 1);
  CHECK(share_out(machine, 2, {.threads_of_machine = 100})[0].second.placement == CpuPlacement::kBound);
  CHECK(share_out(machine, 2, {.threads_of_task = 1})[0].second.threads == 1);
  CHECK(share_out(machine, 2, {.threads_of_task = 8})[0].second.threads == 4);
  // Both hardware threads of each core, but not more.
  CHECK(share_out(machine, 2, {.threads_asked_for = 8})[0].second.placement == CpuPlacement::kBound);
  CHECK(share_out(machine, 2, {.threads_asked_for = 9})[0].second.placement == CpuPlacement::kFree);
  // More ranks than cores.
  const auto many = share_out(CpuTopology::synthetic("core:2 pu:1"), 3);
  CHECK(many[2].second.threads == 1);
  CHECK(describe_shares(many) ==
        "CPU of rank 0's host: 3 ranks of 1 thread on cores 0-1 (NUMA domain 0), not bound, because the ranks share 2 "
        "cores");
}

TEST_CASE("bound ranks stay bound, and ranks bound to the same cores divide them") {
  const auto machine = CpuTopology::synthetic("numa:1 core:2 pu:1");
  const CpuShare alone = share_cpu(machine, {{0, 1}, {2, 3}}, 0, {});
  CHECK(alone.threads == 2);
  CHECK(alone.placement == CpuPlacement::kByLauncher);
  CHECK(alone.cores == Cores{0, 1});
  CHECK(share_cpu(machine, {{0, 1}, {2, 3}, {0, 1}, {2, 3}}, 2, {}).threads == 1);
  CHECK(describe_shares({{0, alone}}) ==
        "CPU of rank 0's host: 1 rank of 2 threads, bound by the launcher: rank 0 to cores 0-1 (NUMA domain 0)");
  CHECK(!few_cores({{0, alone}, {1, alone}}, 64, {}));
  const CpuShare single = share_cpu(CpuTopology::synthetic("core:1 pu:1"), {{0}, {1}}, 0, {});
  CHECK_THAT(few_cores({{0, single}, {1, single}}, 8, {}).value(), Catch::Contains("(8 hardware threads) to one core"));
  CHECK(!few_cores({{0, single}, {1, single}}, 7, {}));
  // One rank alone, which mpirun binds to a core.
  const CpuShare only = share_cpu(CpuTopology::synthetic("core:1 pu:1"), {{0}}, 0, {});
  CHECK_THAT(few_cores({{0, only}}, 96, {.launched = true}).value(),
             Catch::Contains("(96 hardware threads) to one core"));
  CHECK(!few_cores({{0, only}}, 1, {.launched = true}));
  // A container with one core.
  CHECK(!few_cores({{0, only}}, 96, {}));
  CHECK(!few_cores(share_out(CpuTopology::synthetic("core:2 pu:1"), 2), 64, {}));
}

TEST_CASE("warns if an OpenMP variable leaves only one core, unless threads are requested") {
  const auto machine = CpuTopology::synthetic("core:1 pu:1");
  CpuLimits limits{.bound_by = "OMP_PROC_BIND"};
  const CpuShare one = share_cpu(machine, {{0}}, 0, limits);
  CHECK(one.threads == 1);
  CHECK_THAT(few_cores({{0, one}}, 2, limits).value(),
             Catch::StartsWith("OMP_PROC_BIND bound each rank on rank 0's host"));
  limits.threads_asked_for = 2;
  CHECK(!few_cores({{0, share_cpu(machine, {{0}}, 0, limits)}}, 2, limits));
}

TEST_CASE("limits are set by OpenMP variables, srun and cgroups") {
  const auto number = [](const char* text) {
    return cpu_limits(
               [=](const std::string& name) -> std::optional<std::string> {
                 return name == "OMP_NUM_THREADS" ? std::optional<std::string>(text) : std::nullopt;
               },
               0)
        .threads_asked_for;
  };
  CHECK(number("3") == 3);
  CHECK(number("3,2") == 3);
  CHECK(number("99999999999") == 0);
  CHECK(number("many") == 0);
  const CpuLimits none = cpu_limits(environment({}), 0);
  CHECK(none.threads_asked_for == 0);
  CHECK(none.threads_of_task == 0);
  CHECK(none.threads_of_machine == 0);
  CHECK(!none.bound_by);
  const CpuLimits all =
      cpu_limits(environment({{"OMP_NUM_THREADS", "3"}, {"SLURM_CPUS_PER_TASK", "4"}, {"OMP_PLACES", "cores"}}), 6);
  CHECK(all.threads_asked_for == 3);
  CHECK(all.threads_of_task == 4);
  CHECK(all.threads_of_machine == 6);
  CHECK(all.bound_by == "OMP_PLACES");
  const auto machine = CpuTopology::synthetic("numa:2 core:4 pu:1");
  CHECK_THAT(describe_shares(share_out(machine, 2, {.bound_by = "OMP_PLACES"})),
             Catch::EndsWith("not bound, because OMP_PLACES binds threads"));
  // What is no number of threads asks for none.
  CHECK(cpu_limits(environment({{"OMP_NUM_THREADS", "-1"}}), 0).threads_asked_for == 0);
  // The ranks of srun, but not those of an mpirun within its job.
  const auto of_srun = [](const char* tasks, const char* ranks) {
    return cpu_limits(
               environment(
                   {{"SLURM_CPUS_PER_TASK", "4"}, {"SLURM_STEP_NUM_TASKS", tasks}, {"OMPI_COMM_WORLD_SIZE", ranks}}),
               0)
        .threads_of_task;
  };
  CHECK(of_srun("2", "2") == 4);
  CHECK(of_srun("1", "2") == 0);
}

}  // namespace mpzero
