#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// sum [n] <- (or +=) shards[0] + shards[1] + ..., on the current stream of the GPU. `shards` [R, n] is contiguous, fp32
// or bf16. `sum` has the same dtype or fp32. The shards are added in order in fp32, and the sum is rounded once.
void sum_shards(const at::Tensor& shards, const at::Tensor& sum, SumMode mode);

}  // namespace mpzero::parallel
