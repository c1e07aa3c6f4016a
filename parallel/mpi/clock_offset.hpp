#pragma once

#include <functional>
#include <vector>

#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero::parallel {

// Seconds since the epoch.
double system_clock_seconds();

// Offsets of the clocks of `ranks` from rank 0's (positive: ahead), in seconds, in order; only on rank 0, empty on
// other ranks. Measured as in NTP: the other clock is read in the middle of a round trip, and the shortest of several
// round trips counts, whose duration bounds the error. Collective over all ranks, with the same `ranks` everywhere.
std::vector<double> measure_clock_offsets(const MpiRuntime& mpi, const std::vector<int>& ranks,
                                          const std::function<double()>& clock = system_clock_seconds);

}  // namespace mpzero::parallel
