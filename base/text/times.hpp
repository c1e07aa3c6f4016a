#pragma once

#include <string>

namespace mpzero {

// Seconds since 1970, to the millisecond.
double seconds_since_1970();

// "2.5 s", "24 s", "2 min 30 s", "3 h 2 min", "4 d 7 h". A negative duration (clock skew) is "0.0 s".
std::string duration_text(double seconds);

}  // namespace mpzero
