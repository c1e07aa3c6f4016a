#include "app/memory/memory_limit.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mpzero {

MemoryRoom memory_room(const MachineSizes& machine) {
  const int64_t host =
      machine.host > 0 ? within_host_margin(machine.host) / machine.ranks : std::numeric_limits<int64_t>::max();
  if (!machine.gpu) {
    return {.available = {.device = std::max<int64_t>(0, tensors_within(host)), .host = host}, .ranks = machine.ranks};
  }
  const int64_t context = machine.context + std::max<int64_t>(0, machine.gpu_used - kContextAlone);
  const int64_t device = *machine.gpu - context;
  return {.available = {.device = device, .host = host},
          .margin = memory_margin(device),
          .context = context,
          .ranks = machine.ranks};
}

double smallest_host_ratio(const parallel::MemoryUse& use, int64_t device_bytes) {
  if (use.host_optimizer_states == 0) return 0;
  const double fits = static_cast<double>(device_bytes) / static_cast<double>(use.host_optimizer_states);
  constexpr double kDigits = 1e4;
  return std::clamp(std::ceil((1 - fits) * kDigits) / kDigits, 0.0, 1.0);
}

}  // namespace mpzero
