#pragma once

#include <cstdint>
#include <string>

#include "parallel/optimizer/lr_schedule.hpp"

namespace mpzero {

// Describes the first, maximum and last learning rate in updates `first` to `last`: "1e-05 at step 301, 0.0003 at step
// 318, 0 at step 360".
std::string describe_rates(const parallel::LrSchedule& schedule, int64_t first, int64_t last);

}  // namespace mpzero
