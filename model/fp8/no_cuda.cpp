// Replaces cast.cu and codes.cu in builds without GPU kernels.

#include "base/gpu_kernels.hpp"
#include "model/fp8/cuda.hpp"

namespace mpzero::model::fp8::cuda {

at::Tensor maximum(const at::Tensor&) { throw_no_gpu_kernels(); }
CastMatrix cast(const at::Tensor&, Format, Scaling, Forms, const at::Tensor&) { throw_no_gpu_kernels(); }
void raise_maximum(const at::Tensor&, const at::Tensor&) { throw_no_gpu_kernels(); }
void scales_out(const at::Tensor&, Format, const at::Tensor&) { throw_no_gpu_kernels(); }
void encode_out(const at::Tensor&, const at::Tensor&, Format, const at::Tensor&) { throw_no_gpu_kernels(); }
at::Tensor transposed(const at::Tensor&) { throw_no_gpu_kernels(); }

}  // namespace mpzero::model::fp8::cuda
