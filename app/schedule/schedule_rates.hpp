#pragma once

#include <cstdint>
#include <string>

#include "parallel/optimizer/lr_schedule.hpp"

namespace mpzero {

// The rates of updates `first` to `last`: of the first, of the highest and of the last, as in
// "1e-05 at step 301, 0.0003 at step 318, 0 at step 360".
std::string describe_rates(const parallel::LrSchedule& schedule, int64_t first, int64_t last);

}  // namespace mpzero
