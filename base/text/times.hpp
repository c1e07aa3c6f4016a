#pragma once

#include <cstdint>
#include <string>

namespace mpzero {

// Returns the Unix time in seconds, with a resolution of one millisecond.
double seconds_since_1970();

// Returns CLOCK_MONOTONIC, a clock that all processes on a host share, in nanoseconds. Async-signal-safe.
int64_t monotonic_nanoseconds();

// Formats a duration as "2.5 s", "24 s", "2 min 30 s", "3 h 2 min" or "4 d 7 h". Formats a negative duration (clock
// skew) as "0.0 s".
std::string duration_text(double seconds);

}  // namespace mpzero
