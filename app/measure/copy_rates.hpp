#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace mpzero::measure {

// Bytes per second.
struct CopyRates {
  double to_device = 0, from_device = 0;  // between pinned host memory and a GPU
  double both_ways = 0;                   // sum of both, run concurrently
  double on_device = 0;                   // read and written bytes
};

// With buffers of `bytes`. On the CPU, only `on_device`, its memory's rate.
CopyRates copy_rates(at::Device device, int64_t bytes);

// Rate of a copy in host memory with all ATen threads: read and written bytes per second.
double host_copy_rate(int64_t bytes);

}  // namespace mpzero::measure
