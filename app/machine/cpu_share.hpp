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
  int threads_asked_for = 0;                 // by OMP_NUM_THREADS; 0: not given
  int threads_of_task = 0;                   // by srun's --cpus-per-task; 0: not given
  int threads_of_machine = 0;                // of all its ranks, by control groups; 0: no limit
  std::optional<std::string> bound_by = {};  // the variable of the environment by which the user binds threads
  bool launched = false;                     // by mpirun or srun
};

// `allowed_by_groups`: allowed_cores().
CpuLimits cpu_limits(const parallel::Environment& environment, int allowed_by_groups);

enum class CpuPlacement : uint8_t {
  kFree,       // the system places the threads
  kBound,      // mpzero binds them
  kByLauncher  // what has started the ranks has bound them
};

// The part of its machine's CPU that a rank uses.
struct CpuShare {
  int threads = 1;
  std::vector<int> cores;    // those that its threads run on
  std::vector<int> domains;  // of these cores
  CpuPlacement placement = CpuPlacement::kFree;
  std::string reason;  // why it is kFree
};

// The share of rank `local_rank` of a machine whose ranks may use the cores `cores_of_ranks`; `machine` shows those of
// this rank. A thread for each core, also of a core with two hardware threads, since a product of matrices fills its
// units with one. Ranks that may use the same cores divide them, each near its NUMA domain. They are bound only where
// they use all cores: two runs that share a machine would otherwise bind themselves to the same ones.
CpuShare share_cpu(const parallel::CpuTopology& machine, const std::vector<std::vector<int>>& cores_of_ranks,
                   int local_rank, const CpuLimits& limits);

// One line about the ranks of a machine, given with their numbers, e.g. "CPU of rank 0's host: 2 ranks of 48 threads,
// bound: rank 0 to cores 0-47 (NUMA domain 0), rank 1 to cores 48-95 (NUMA domain 1)".
std::string describe_shares(const std::vector<std::pair<int, CpuShare>>& shares);

// A warning if the ranks of a machine have one core each, and few of its hardware threads (`online`), as mpirun binds
// them by default, or because OpenMP has bound their first threads.
std::optional<std::string> few_cores(const std::vector<std::pair<int, CpuShare>>& shares, int online,
                                     const CpuLimits& limits);

// For the user, about this rank's machine; empty on GPUs.
struct CpuUse {
  std::string line;
  std::optional<std::string> warning;
};

// What share_cores() knows of the machine, and what it does to this process.
struct CpuHost {
  parallel::CpuTopology topology;
  CpuLimits limits;
  int online = 1;  // hardware threads of the machine
  std::function<bool(const parallel::CpuTopology&, const std::vector<int>& hardware_threads)> bind =
      &parallel::CpuTopology::bind_process;
  std::function<void(int)> set_threads = at::set_num_threads;

  static CpuHost of_this_machine();
};

// Sets the number of this rank's ATen threads to its share of the cores, unless OMP_NUM_THREADS does. On the CPU it
// also binds the process to them. The pages of tensors that it makes later then are in the memory of its NUMA domain,
// whichever thread touches them first, and threads that it starts later, those of OpenMP too, run there. Threads are
// not bound to single cores: those that read data, send and save would stay on the core of the thread that starts them.
// Collective.
CpuUse share_cores(at::Device device, parallel::MpiRuntime& mpi, const CpuHost& host = CpuHost::of_this_machine());

}  // namespace mpzero
