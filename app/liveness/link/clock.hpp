#pragma once

#include <chrono>

namespace mpzero {

// What silence is measured with: it runs on evenly when the time of day is set.
using LivenessClock = std::chrono::steady_clock;
using LivenessTime = LivenessClock::time_point;

inline double in_seconds(LivenessClock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace mpzero
