#pragma once

#include <cstdint>
#include <string>

#include "parallel/optimizer/lr_schedule.hpp"

namespace mpzero {

// The learning rates in updates `first` to `last`: the first, the highest and the last, e.g. "1e-05 at step 301, 0.0003
// at step 318, 0 at step 360".
std::string describe_rates(const parallel::LrSchedule& schedule, int64_t first, int64_t last);

}  // namespace mpzero
