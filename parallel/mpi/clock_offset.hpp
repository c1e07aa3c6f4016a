#pragma once

#include <functional>
#include <vector>

#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero::parallel {

// Returns the Unix time in seconds.
double system_clock_seconds();

// Returns the offsets of the clocks of `ranks` from rank 0's clock, in seconds (positive: ahead), on rank 0; returns an
// empty vector on other ranks. As in NTP, the remote clock is assumed to be read in the middle of a round trip. The
// shortest of several round trips is used, and its duration bounds the error. Must be called by all ranks, with the
// same `ranks`.
std::vector<double> measure_clock_offsets(const MpiRuntime& mpi, const std::vector<int>& ranks,
                                          const std::function<double()>& clock = system_clock_seconds);

}  // namespace mpzero::parallel
