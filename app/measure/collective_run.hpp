#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/process_group.hpp"
#include "parallel/comm/communicator.hpp"

namespace mpzero::measure {

struct CollectiveTime {
  std::string name;  // "all-gather", "reduce-scatter", "all-reduce"
  at::ScalarType type = at::kFloat;
  double bytes = 0;  // size of the full tensor
  double seconds = 0;
};

// Returns the median times of several calls on the slowest rank, for tensors of about `sizes` bytes in host memory.
// Collective over `communicator` and `group`, which must have the same ranks.
std::vector<CollectiveTime> collective_times(parallel::Communicator& communicator, ProcessGroup& group,
                                             const std::vector<int64_t>& sizes);

}  // namespace mpzero::measure
