#pragma once

#include "model/fp8/cast.hpp"

// The CUDA kernels behind the functions of the same names in cast.hpp, on the current stream of the tensor's device.
namespace mpzero::model::fp8::cuda {

at::Tensor maximum(const at::Tensor& x);
CastMatrix cast(const at::Tensor& x, Format format, Scaling scaling, Forms forms, const at::Tensor& maximum_of_x);

}  // namespace mpzero::model::fp8::cuda
