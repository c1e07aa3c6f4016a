#pragma once

#include <cstdint>
#include <limits>

#include "parallel/zero/gather_schedule.hpp"

namespace mpzero::parallel {

// DeepSpeed's size limits in "zero_optimization", in elements.
struct ZeroLimits {
  GatherLimits gather = {};  // stage 3 only
  // Maximum number of gradient elements that are summed at a time, unless a single unit is larger.
  int64_t reduce_bucket_size = std::numeric_limits<int64_t>::max();
};

}  // namespace mpzero::parallel
