#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace mpzero::measure {

// Seconds of AdamW over `parameters`: gradient and parameter in bf16, master weight and moments in fp32. On the host:
// with `threads` threads, as in the host optimizer.
double adamw_seconds(at::Device device, int64_t parameters);
double host_adamw_seconds(int64_t parameters, int threads);
// Seconds of the sum of squares of bf16 gradients.
double sum_of_squares_seconds(at::Device device, int64_t gradients);

}  // namespace mpzero::measure
