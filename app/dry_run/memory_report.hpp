#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "app/memory/memory_plan.hpp"

namespace mpzero {

// The ranks that a dry run is about.
struct DryRunRanks {
  int world_size = 1;
  int per_host = 1;
  bool consecutive = true;  // on a host; otherwise they go around the hosts
  bool started = false;     // by a launcher, so that this machine is one of their hosts
};

// What the machine of a dry run has. It need not be one of the run's.
struct MachineMemory {
  int gpus = 0;
  std::optional<int64_t> smallest_gpu;  // bytes; nothing where there is no GPU, or its driver does not report it
  int64_t host = 0;                     // bytes that a process can still allocate
  int64_t gpu_used = 0;                 // bytes, of the GPU with the most in use
  std::string gpu_name = {};            // of the first
};
MachineMemory this_machine();

// Whether this machine has a GPU, of known memory, for each rank of a host.
bool can_be_host_of(const MachineMemory& machine, const DryRunRanks& ranks);

// What each of the run's ranks can have, if this machine can be one of the run's; unlimited otherwise. On CPUs a run of
// several hosts is limited only where it was started on this one.
MemoryNeed memory_limit(const DryRunRanks& ranks, const MachineMemory& machine, bool on_gpus);

// What the run needs, a line each: of a GPU by purpose, and of a host. Without GPUs, of a host only.
std::vector<std::string> memory_report(const RunSetup& setup, const DryRunRanks& ranks, bool on_gpus);

// A sentence where the run does not fit and what would; nothing where it fits. Only a machine with a GPU for each of
// its ranks can be one of the run's, so any other is not compared.
std::optional<std::string> memory_problem(const RunSetup& setup, const DryRunRanks& ranks,
                                          const MachineMemory& machine);

}  // namespace mpzero
