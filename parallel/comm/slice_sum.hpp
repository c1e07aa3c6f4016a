#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// sum [n] <- (or +=) slices[0] + slices[1] + …, on the GPU, on the current stream: slices [R, n] contiguous, fp32 or
// bf16; sum of the same type or fp32. Added in that order in fp32 and rounded once.
void sum_slices(const at::Tensor& slices, const at::Tensor& sum, SumMode mode);

}  // namespace mpzero::parallel
