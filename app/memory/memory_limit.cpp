#include "app/memory/memory_limit.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mpzero {

MemoryNeed memory_limit(const MachineSizes& machine) {
  MemoryNeed limit{.device = std::numeric_limits<int64_t>::max(),
                   .host = within_host_margin(machine.host) / machine.ranks};
  if (!machine.gpu) return limit;
  const int64_t others = std::max<int64_t>(0, machine.gpu_used - kContextAlone);
  const int64_t available = *machine.gpu - kUsualContext - others;
  limit.device = available - memory_margin(available);
  return limit;
}

double smallest_host_ratio(const parallel::MemoryUse& use, int64_t device_bytes) {
  if (use.host_optimizer_states == 0) return 0;
  const double fits = static_cast<double>(device_bytes) / static_cast<double>(use.host_optimizer_states);
  constexpr double kDigits = 1e4;
  return std::clamp(std::ceil((1 - fits) * kDigits) / kDigits, 0.0, 1.0);
}

}  // namespace mpzero
