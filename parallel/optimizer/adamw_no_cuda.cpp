// Replaces adamw_cuda.cu in builds without GPU kernels.

#include "base/gpu_kernels.hpp"
#include "parallel/optimizer/adamw_kernels.hpp"

namespace mpzero::parallel {

void adamw_cuda(const AdamWSpans&, const AdamWUpdate&) { throw_no_gpu_kernels(); }
void partial_sums_of_squares_cuda(const at::Tensor&, const at::Tensor&) { throw_no_gpu_kernels(); }
int64_t num_square_partials_cuda() { throw_no_gpu_kernels(); }
void clipping_scale_cuda(const at::Tensor&, const at::Tensor&, double) { throw_no_gpu_kernels(); }

}  // namespace mpzero::parallel
