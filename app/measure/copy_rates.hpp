#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace mpzero::measure {

// Bytes a second.
struct CopyRates {
  double to_device = 0, from_device = 0;  // between pinned host memory and a GPU
  double both_ways = 0;                   // the sum of both at the same time
  double on_device = 0;                   // read and written bytes
};

// With buffers of `bytes`. On the CPU `on_device` alone, which is its memory's.
CopyRates copy_rates(at::Device device, int64_t bytes);

// Of a copy in host memory by all of ATen's threads: read and written bytes a second.
double host_copy_rate(int64_t bytes);

}  // namespace mpzero::measure
