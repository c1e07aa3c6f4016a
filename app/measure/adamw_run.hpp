#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace mpzero::measure {

// Return the seconds of an AdamW update of `parameters` parameters, with gradient and parameter in bf16, and master
// weight and moments in fp32. The host version uses `threads` threads, like the host optimizer.
double adamw_seconds(at::Device device, int64_t parameters);
double host_adamw_seconds(int64_t parameters, int threads);
// Returns the seconds of the sum of squares of bf16 gradients.
double sum_of_squares_seconds(at::Device device, int64_t gradients);

}  // namespace mpzero::measure
