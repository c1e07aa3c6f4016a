#include "app/memory/memory_limit.hpp"

#include <algorithm>
#include <limits>

namespace mpzero {
namespace {

// Memory of a CUDA context without NCCL, included in kUsualContext.
constexpr int64_t kContextAlone = int64_t{1} << 30;

}  // namespace

MemoryNeed memory_limit(const MachineSizes& machine) {
  MemoryNeed limit{.device = std::numeric_limits<int64_t>::max(),
                   .host = within_host_margin(machine.host) / machine.ranks};
  if (!machine.gpu) return limit;
  const int64_t others = std::max<int64_t>(0, machine.gpu_used - kContextAlone);
  const int64_t available = *machine.gpu - kUsualContext - others;
  limit.device = available - memory_margin(available);
  return limit;
}

}  // namespace mpzero
