#pragma once

#include <chrono>

namespace mpzero {

// The clock that measures silence. It is monotonic: setting the time of day does not affect it.
using LivenessClock = std::chrono::steady_clock;
using LivenessTime = LivenessClock::time_point;

inline double in_seconds(LivenessClock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace mpzero
