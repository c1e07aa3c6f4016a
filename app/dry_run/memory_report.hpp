#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "app/memory/memory_plan.hpp"

namespace mpzero {

// Number and placement of ranks that a dry run assumes.
struct DryRunRanks {
  int world_size = 1;
  int per_host = 1;
  bool consecutive = true;  // ranks of a host are consecutive; false: round-robin placement
  bool started = false;     // started by a launcher, so this machine is one of the run's hosts
};

// Memory of this machine, which is not necessarily one of the run's hosts.
struct MachineMemory {
  int gpus = 0;
  std::optional<int64_t> smallest_gpu;  // bytes; std::nullopt if there is no GPU or the size is unknown
  int64_t host = 0;                     // available bytes
  int64_t gpu_used = 0;                 // bytes in use, maximum over all GPUs
  std::string gpu_name = {};            // name of the first GPU
};
MachineMemory this_machine();

// Returns true if this machine has a GPU of known memory size for each rank of a host.
bool can_be_host_of(const MachineMemory& machine, const DryRunRanks& ranks);

// Returns the memory available to each rank, or no limit if this machine cannot be one of the run's hosts. A CPU run on
// several hosts has a limit only if a launcher started it on this machine.
MemoryNeed memory_limit(const DryRunRanks& ranks, const MachineMemory& machine, bool on_gpus);

// Describes memory use, one item per line: per GPU, with a breakdown, and per host. For CPU runs, describes only the
// memory use per host. Without a limit, the first line reports that memory was not checked. `limit`: result of
// memory_limit(). `release`: see MemoryEstimate::choose_release().
std::vector<std::string> memory_report(const RunSetup& setup, const DryRunRanks& ranks, bool on_gpus,
                                       const MemoryNeed& limit, std::optional<bool> release = std::nullopt);

// Explains why the run does not fit in memory, with changes that would make it fit. Returns std::nullopt if the run
// fits, or if this machine does not have a GPU per rank.
std::optional<std::string> memory_problem(const RunSetup& setup, const DryRunRanks& ranks,
                                          const MachineMemory& machine);

}  // namespace mpzero
