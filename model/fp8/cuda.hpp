#pragma once

#include "model/fp8/cast.hpp"
#include "model/fp8/codes.hpp"

// CUDA implementations of the functions in cast.hpp and codes.hpp. Kernels run on the current stream of the tensor's
// device.
namespace mpzero::model::fp8::cuda {

at::Tensor maximum(const at::Tensor& x);
CastMatrix cast(const at::Tensor& x, Format format, Scaling scaling, Forms forms, const at::Tensor& maximum_of_x);

void raise_maximum(const at::Tensor& x, const at::Tensor& largest);
void scales_out(const at::Tensor& maxima, Format format, const at::Tensor& scales);
void encode_out(const at::Tensor& x, const at::Tensor& maximum, Format format, const at::Tensor& codes);
at::Tensor transposed(const at::Tensor& codes);

}  // namespace mpzero::model::fp8::cuda
