#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "app/memory/memory_plan.hpp"

namespace mpzero {

// The ranks that a dry run assumes.
struct DryRunRanks {
  int world_size = 1;
  int per_host = 1;
  bool consecutive = true;  // ranks of a host; else round-robin over the hosts
  bool started = false;     // by a launcher: this machine is one of the run's hosts
};

// Memory of the machine of a dry run, which need not be one of the run's hosts.
struct MachineMemory {
  int gpus = 0;
  std::optional<int64_t> smallest_gpu;  // bytes; none without a GPU, or if the driver does not report it
  int64_t host = 0;                     // available bytes
  int64_t gpu_used = 0;                 // bytes in use; the maximum over all GPUs
  std::string gpu_name = {};            // of the first GPU
};
MachineMemory this_machine();

// Whether this machine has a GPU, of known memory, for each rank of a host.
bool can_be_host_of(const MachineMemory& machine, const DryRunRanks& ranks);

// The memory available to each rank, if this machine can be one of the run's hosts; else unlimited. On CPUs, a run on
// several hosts is limited only if a launcher started it on this machine.
MemoryNeed memory_limit(const DryRunRanks& ranks, const MachineMemory& machine, bool on_gpus);

// The run's memory, one line each: per GPU by purpose, and per host. Without GPUs, only per host. `limit`: per rank.
std::vector<std::string> memory_report(const RunSetup& setup, const DryRunRanks& ranks, bool on_gpus,
                                       const MemoryNeed& limit);

// Why the run does not fit, and changes that would; std::nullopt if it fits. Compares only with a machine that can be
// one of the run's hosts, with a GPU per rank.
std::optional<std::string> memory_problem(const RunSetup& setup, const DryRunRanks& ranks,
                                          const MachineMemory& machine);

}  // namespace mpzero
