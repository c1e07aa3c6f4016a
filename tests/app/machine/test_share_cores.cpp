#include <ATen/Parallel.h>

#include <optional>

#include "app/machine/cpu_share.hpp"
#include "base/collectives.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero {
namespace {

using parallel::CpuTopology;
using parallel::mpi;
using Cores = std::vector<int>;

// A machine of eight cores with two hardware threads each, the second ones numbered after all first ones, on which all
// ranks of the test run, and what is done to this process.
struct Machine {
  explicit Machine(const CpuLimits& limits = {}, bool may_bind = true)
      : host{.topology = CpuTopology::synthetic("numa:2 core:4 pu:2(indexes=0,8,1,9,2,10,3,11,4,12,5,13,6,14,7,15)"),
             .limits = limits,
             .online = 16} {
    host.bind = [this, may_bind](const CpuTopology&, const Cores& hardware_threads) {
      bound = hardware_threads;
      return may_bind;
    };
    host.set_threads = [this](int number) { threads = number; };
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  CpuUse share(at::Device device = at::kCPU) { return share_cores(device, mpi(), host); }

  CpuHost host;
  std::optional<Cores> bound;
  std::optional<int> threads;
};

int ranks() { return mpi().world_size(); }

}  // namespace

TEST_CASE("each rank gets its threads and is bound to both hardware threads of its cores") {
  Machine machine;
  const CpuUse use = machine.share();
  const int each = 8 / ranks();
  CHECK(machine.threads == each);
  Cores expected;
  for (const int first : {0, 8}) {
    for (int core = 0; core < each; ++core) expected.push_back(first + mpi().rank() * each + core);
  }
  CHECK(machine.bound == expected);
  CHECK(!use.warning);
  // The same line on all ranks.
  const char* const lines[] = {
      "1 rank of 8 threads, bound: rank 0 to cores 0-7 (NUMA domains 0-1)",
      "2 ranks of 4 threads, bound: rank 0 to cores 0-3 (NUMA domain 0), rank 1 to cores 4-7 (NUMA domain 1)",
      "4 ranks of 2 threads, bound: rank 0 to cores 0-1 (NUMA domain 0), rank 1 to cores 2-3 (NUMA domain 0), rank 2 "
      "to cores 4-5 (NUMA domain 1), rank 3 to cores 6-7 (NUMA domain 1)"};
  CHECK(use.line == std::string("CPU of rank 0's host: ") + lines[ranks() / 2]);
}

TEST_CASE("OMP_NUM_THREADS sets the thread count without binding cores") {
  Machine machine({.threads_asked_for = 1});
  const CpuUse use = machine.share();
  CHECK(!machine.threads);
  CHECK(!machine.bound);
  CHECK_THAT(use.line,
             Catch::Contains(std::to_string(ranks()) + (ranks() == 1 ? " rank" : " ranks") +
                             " of 1 thread on cores 0-7 (NUMA domains 0-1), not bound, because the ranks use " +
                             std::to_string(ranks()) + " of 8 cores"));
}

TEST_CASE("a refused binding is reported and keeps the thread count") {
  Machine machine({}, /*may_bind=*/false);
  const CpuUse use = machine.share();
  CHECK(machine.threads == 8 / ranks());
  CHECK(machine.bound.has_value());
  CHECK_THAT(use.line, Catch::EndsWith("not bound, because the operating system rejected the CPU affinity"));
}

TEST_CASE("with GPUs, only the thread count is set") {
  Machine machine;
  const CpuUse use = machine.share({at::kCUDA, 0});
  CHECK(machine.threads == 8 / ranks());
  CHECK(!machine.bound);
  CHECK(use.line.empty());
  CHECK(!use.warning);
}

TEST_CASE("ranks bound to one core by their launcher stay bound, with a warning") {
  if (ranks() == 1) return;
  Machine machine;
  machine.host.topology = CpuTopology::synthetic("core:1 pu:1(indexes=" + std::to_string(mpi().rank()) + ")");
  const CpuUse use = machine.share();
  CHECK(machine.threads == 1);
  CHECK(!machine.bound);
  CHECK_THAT(use.line, Catch::Contains("bound by the launcher: rank 0 to core 0"));
  CHECK_THAT(use.warning.value_or(""), Catch::Contains("(16 hardware threads) to one core"));
}

TEST_CASE("on this machine, the process has the threads and cores of its share") {
  CpuHost host = CpuHost::of_this_machine();
  // Those of the test's own environment.
  host.limits = {};
  const CpuShare expected =
      share_cpu(host.topology, all_gather(mpi(), host.topology.cores()), mpi().local_rank(), host.limits);
  const int threads_before = at::get_num_threads();
  const CpuUse use = share_cores(at::kCPU, mpi(), host);
  CHECK(at::get_num_threads() == expected.threads);
  // A system may refuse to bind.
  if (use.line.find("refuses") == std::string::npos) {
    CHECK(CpuTopology::of_this_machine().cores() == expected.cores);
  }
  host.topology.bind_process(host.topology.hardware_threads(host.topology.cores()));
  at::set_num_threads(threads_before);
}

}  // namespace mpzero
