#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// sum [n] <- (or +=) shards[0] + shards[1] + …, on the GPU, on the current stream: shards [R, n] contiguous, fp32 or
// bf16; sum of the same dtype or fp32. Added in that order in fp32 and rounded once.
void sum_shards(const at::Tensor& shards, const at::Tensor& sum, SumMode mode);

}  // namespace mpzero::parallel
