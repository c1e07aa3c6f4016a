// Replaces shard_sum.cu in builds without GPU kernels.

#include "base/gpu_kernels.hpp"
#include "parallel/comm/shard_sum.hpp"

namespace mpzero::parallel {

void sum_shards(const at::Tensor&, const at::Tensor&, SumMode) { throw_no_gpu_kernels(); }

}  // namespace mpzero::parallel
