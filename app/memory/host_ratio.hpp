#pragma once

#include <cstdint>

#include "parallel/host/memory_use.hpp"

namespace mpzero {

// The smallest fraction of states on the host, to four digits, such that the rest fits into `device_bytes` in addition
// to a rank's current use. `use`: of a rank with all states on the host.
double smallest_host_ratio(const parallel::MemoryUse& use, int64_t device_bytes);

}  // namespace mpzero
