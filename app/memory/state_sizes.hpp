#pragma once

#include <vector>

#include "base/parameter_spec.hpp"
#include "parallel/host/memory_use.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// What ZeroEngine::memory_use() will say on each of `world_size` ranks, without making the engine: for runs that do not
// fit, or that are only thought about. `uses`: the order in which a step gathers the units.
parallel::MemoryUse state_sizes(const std::vector<UnitSpec>& units, const parallel::ZeroOptions& options,
                                int world_size, const std::vector<size_t>& uses);

// The sum of what is on the device, and of what is in host memory.
int64_t device_bytes(const parallel::MemoryUse& use);
int64_t host_bytes(const parallel::MemoryUse& use);

// The smallest share of states on the host, to four digits, for which the others fit into `device_bytes` beside what a
// rank has there already. `use`: of a rank all of whose states are on the host.
double smallest_host_ratio(const parallel::MemoryUse& use, int64_t device_bytes);

}  // namespace mpzero
