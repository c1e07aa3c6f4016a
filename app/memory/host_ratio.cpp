#include "app/memory/host_ratio.hpp"

#include <algorithm>
#include <cmath>

namespace mpzero {

double smallest_host_ratio(const parallel::MemoryUse& use, int64_t device_bytes) {
  if (use.host_optimizer_states == 0) return 0;
  const double fits = static_cast<double>(device_bytes) / static_cast<double>(use.host_optimizer_states);
  constexpr double kDigits = 1e4;
  return std::clamp(std::ceil((1 - fits) * kDigits) / kDigits, 0.0, 1.0);
}

}  // namespace mpzero
