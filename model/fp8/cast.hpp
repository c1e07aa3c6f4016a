#pragma once

#include <ATen/core/Tensor.h>

#include "model/fp8/matrix.hpp"
#include "model/fp8/recipe.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::model::fp8 {

struct CastMatrix {
  Matrix rows;     // [N, C]
  Matrix columns;  // [C, N]
  // fp32: the largest magnitude of x or, rowwise, of each row of x (each column, if only `columns` was requested).
  at::Tensor maxima;
};

// The largest magnitude of x (bf16, on any device) as an fp32 scalar; NaN if x contains NaN.
at::Tensor maximum(const at::Tensor& x);

// Casts x [N, C] (bf16, contiguous) to the requested forms. FP8 data and scales follow format.hpp and are the same on
// every device. `maximum_of_x`: maximum(x), if known; only for kTensorwise.
CastMatrix cast(const at::Tensor& x, Format format, Scaling scaling, Forms forms, const at::Tensor& maximum_of_x = {});

// Scalar reference on the CPU.
namespace reference {
at::Tensor maximum(const at::Tensor& x);
CastMatrix cast(const at::Tensor& x, Format format, Scaling scaling, Forms forms, const at::Tensor& maximum_of_x = {});
}  // namespace reference

}  // namespace mpzero::model::fp8
