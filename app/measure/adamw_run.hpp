#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace mpzero::measure {

// Return the time, in seconds, of an AdamW update of `parameters` parameters, with gradients and parameters in bf16,
// and master weights and moments in fp32. The host version uses `threads` threads, like the host optimizer. If `device`
// is a GPU, gradients are copied from the GPU and parameters are copied to the GPU during the update, because in
// training these copies use part of the host's memory bandwidth.
double adamw_seconds(at::Device device, int64_t parameters);
double host_adamw_seconds(int64_t parameters, int threads, at::Device device);
// Returns the time, in seconds, to sum the squares of bf16 gradients.
double sum_of_squares_seconds(at::Device device, int64_t gradients);

}  // namespace mpzero::measure
