#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace mpzero::measure {

// Copy rates in bytes per second.
struct CopyRates {
  double to_device = 0, from_device = 0;  // between pinned host memory and a GPU
  double both_ways = 0;                   // sum of both directions, run concurrently
  double on_device = 0;                   // bytes read and written
};

// Measures copies of buffers of `bytes` bytes. For the CPU, sets only `on_device`.
CopyRates copy_rates(at::Device device, int64_t bytes);

// Returns the bytes read and written per second by a copy in host memory with all ATen threads.
double host_copy_rate(int64_t bytes);

}  // namespace mpzero::measure
