#pragma once

#include <cstdint>

#include "parallel/host/memory_use.hpp"

namespace mpzero {

// The smallest share of states on the host, to four digits, for which the others fit into `device_bytes` beside what a
// rank has there already. `use`: of a rank all of whose states are on the host.
double smallest_host_ratio(const parallel::MemoryUse& use, int64_t device_bytes);

}  // namespace mpzero
