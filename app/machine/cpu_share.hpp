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

// Limits on the threads of a rank, in addition to the allowed cores.
struct CpuLimits {
  int threads_asked_for = 0;                 // OMP_NUM_THREADS; 0: not set
  int threads_of_task = 0;                   // srun's --cpus-per-task; 0: not set
  int threads_of_machine = 0;                // cgroup limit for all ranks of the host; 0: no limit
  std::optional<std::string> bound_by = {};  // environment variable that binds threads
  bool launched = false;                     // started by mpirun or srun
};

// `allowed_by_groups`: allowed_cores().
CpuLimits cpu_limits(const parallel::Environment& environment, int allowed_by_groups);

enum class CpuPlacement : uint8_t {
  kFree,       // the OS schedules the threads
  kBound,      // mpzero binds the process
  kByLauncher  // the launcher has bound the ranks
};

// A rank's share of the host's CPU.
struct CpuShare {
  int threads = 1;
  std::vector<int> cores;    // cores for the threads
  std::vector<int> domains;  // NUMA domains of these cores
  CpuPlacement placement = CpuPlacement::kFree;
  std::string reason;  // reason for kFree
};

// Returns the CPU share of local rank `local_rank`. `machine`: topology of this rank's allowed cores. `cores_of_ranks`:
// allowed cores, indexed by local rank. Uses one thread per core, which saturates the core in matmuls. Ranks with the
// same allowed cores divide the cores by NUMA domain. Ranks with the same allowed cores are bound only if they use all
// of these cores, because two runs on one host would otherwise be bound to the same cores.
CpuShare share_cpu(const parallel::CpuTopology& machine, const std::vector<std::vector<int>>& cores_of_ranks,
                   int local_rank, const CpuLimits& limits);

// Returns a line such as "CPU of rank 0's host: 2 ranks of 48 threads, bound: rank 0 to cores 0-47 (NUMA domain 0),
// rank 1 to cores 48-95 (NUMA domain 1)". `shares`: all ranks of the host with their CPU shares.
std::string describe_shares(const std::vector<std::pair<int, CpuShare>>& shares);

// Returns a warning if each rank of a host has only one core and the ranks use few of the host's `online` hardware
// threads. Possible causes are mpirun's default binding and OpenMP variables that bind the main thread.
std::optional<std::string> few_cores(const std::vector<std::pair<int, CpuShare>>& shares, int online,
                                     const CpuLimits& limits);

// Messages about the CPU of this rank's host; empty if the rank trains on a GPU.
struct CpuUse {
  std::string line;
  std::optional<std::string> warning;
};

// The host's topology and limits, and the functions that share_cores() calls. Tests replace the members.
struct CpuHost {
  parallel::CpuTopology topology;
  CpuLimits limits;
  int online = 1;  // hardware threads of the host
  std::function<bool(const parallel::CpuTopology&, const std::vector<int>& hardware_threads)> bind =
      &parallel::CpuTopology::bind_process;
  std::function<void(int)> set_threads = at::set_num_threads;

  static CpuHost of_this_machine();
};

// Sets the number of ATen threads to this rank's share of the cores, unless OMP_NUM_THREADS is set. On the CPU, also
// binds the process to these cores, so that new tensors are allocated in the local NUMA domain and new threads,
// including OpenMP threads, run on these cores. Threads are not bound to single cores, because threads for data
// loading, communication and checkpoints would inherit the core of the thread that creates them. Collective.
CpuUse share_cores(at::Device device, parallel::MpiRuntime& mpi, const CpuHost& host = CpuHost::of_this_machine());

}  // namespace mpzero
