#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace mpzero::measure {

// Return the seconds of an AdamW update of `parameters` parameters, with gradient and parameter in bf16, and master
// weight and moments in fp32. The host version uses `threads` threads, like the host optimizer. If `device` is a GPU,
// gradients are copied from it and parameters to it during the update, because the copies share the memory bandwidth.
double adamw_seconds(at::Device device, int64_t parameters);
double host_adamw_seconds(int64_t parameters, int threads, at::Device device);
// Returns the seconds of the sum of squares of bf16 gradients.
double sum_of_squares_seconds(at::Device device, int64_t gradients);

}  // namespace mpzero::measure
