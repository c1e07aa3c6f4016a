#pragma once

#include <ATen/Parallel.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "parallel/host/core_assignment.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero {

// Limits on a rank's threads, besides its allowed cores.
struct CpuLimits {
  int threads_asked_for = 0;                 // OMP_NUM_THREADS; 0: not set
  int threads_of_task = 0;                   // srun's --cpus-per-task; 0: not set
  int threads_of_machine = 0;                // cgroup limit for all ranks of the host; 0: no limit
  std::optional<std::string> bound_by = {};  // environment variable with which the user binds threads
  bool launched = false;                     // by mpirun or srun
};

// `allowed_by_groups`: allowed_cores().
CpuLimits cpu_limits(const parallel::Environment& environment, int allowed_by_groups);

enum class CpuPlacement : uint8_t {
  kFree,       // the system places the threads
  kBound,      // mpzero binds them
  kByLauncher  // the launcher has bound the ranks
};

// A rank's share of its host's CPU.
struct CpuShare {
  int threads = 1;
  std::vector<int> cores;    // cores that its threads run on
  std::vector<int> domains;  // NUMA domains of these cores
  CpuPlacement placement = CpuPlacement::kFree;
  std::string reason;  // why it is kFree
};

// The share of rank `local_rank` on a host whose ranks may use the cores `cores_of_ranks`; `machine` contains this
// rank's cores. One thread per core, even on cores with two hardware threads, since a matmul saturates a core with one.
// Ranks with the same allowed cores divide them, each near its NUMA domain. They are bound only if they use all cores:
// two runs that share a host would otherwise bind to the same cores.
CpuShare share_cpu(const parallel::CpuTopology& machine, const std::vector<std::vector<int>>& cores_of_ranks,
                   int local_rank, const CpuLimits& limits);

// One line about a host's ranks, passed with their numbers, e.g. "CPU of rank 0's host: 2 ranks of 48 threads, bound:
// rank 0 to cores 0-47 (NUMA domain 0), rank 1 to cores 48-95 (NUMA domain 1)".
std::string describe_shares(const std::vector<std::pair<int, CpuShare>>& shares);

// A warning if the ranks of a host have one core each, and few of its hardware threads (`online`), as with mpirun's
// default binding, or because OpenMP has bound their first threads.
std::optional<std::string> few_cores(const std::vector<std::pair<int, CpuShare>>& shares, int online,
                                     const CpuLimits& limits);

// Messages for the user about this rank's host; empty on GPUs.
struct CpuUse {
  std::string line;
  std::optional<std::string> warning;
};

// The host as share_cores() sees it, and how share_cores() changes this process.
struct CpuHost {
  parallel::CpuTopology topology;
  CpuLimits limits;
  int online = 1;  // hardware threads of the host
  std::function<bool(const parallel::CpuTopology&, const std::vector<int>& hardware_threads)> bind =
      &parallel::CpuTopology::bind_process;
  std::function<void(int)> set_threads = at::set_num_threads;

  static CpuHost of_this_machine();
};

// Sets the number of this rank's ATen threads to its share of the cores, unless OMP_NUM_THREADS is set. On the CPU,
// also binds the process to these cores. Tensors allocated later are then in the memory of its NUMA domain, whichever
// thread touches them first, and threads started later, including OpenMP's, run there. Threads are not bound to single
// cores: those that read data, send and save would stay on the core of the thread that starts them. Collective.
CpuUse share_cores(at::Device device, parallel::MpiRuntime& mpi, const CpuHost& host = CpuHost::of_this_machine());

}  // namespace mpzero
