// In a build without GPU kernels: what cast.cu defines.

#include "base/gpu_kernels.hpp"
#include "model/fp8/cuda.hpp"

namespace mpzero::model::fp8::cuda {

at::Tensor maximum(const at::Tensor&) { throw_no_gpu_kernels(); }
CastMatrix cast(const at::Tensor&, Format, Scaling, Forms, const at::Tensor&) { throw_no_gpu_kernels(); }

}  // namespace mpzero::model::fp8::cuda
