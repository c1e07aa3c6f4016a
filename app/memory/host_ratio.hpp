#pragma once

#include <cstdint>

#include "parallel/host/memory_use.hpp"

namespace mpzero {

// The smallest fraction of states on the host, to four digits, for which the others fit into `device_bytes` in addition
// to what a rank already has there. `use`: that of a rank with all states on the host.
double smallest_host_ratio(const parallel::MemoryUse& use, int64_t device_bytes);

}  // namespace mpzero
