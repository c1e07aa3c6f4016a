#pragma once

#include <cstdint>

#include "parallel/host/memory_use.hpp"

namespace mpzero {

// Returns the smallest fraction of optimizer states on the host, rounded up to four digits, for which the rest fits in
// `device_bytes` of free GPU memory. `use`: memory use of a rank with all optimizer states on the host.
double smallest_host_ratio(const parallel::MemoryUse& use, int64_t device_bytes);

}  // namespace mpzero
