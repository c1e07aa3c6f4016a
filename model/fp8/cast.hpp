#pragma once

#include <ATen/core/Tensor.h>

#include "model/fp8/matrix.hpp"
#include "model/fp8/recipe.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::model::fp8 {

struct CastMatrix {
  Matrix rows;     // [N, C]
  Matrix columns;  // [C, N]
  // The largest magnitude of x, of each of its rows or of each column, as one of the forms was scaled by them: fp32.
  at::Tensor maxima;
};

// The largest magnitude of x (bf16, on any device) as an fp32 scalar; NaN where x has one.
at::Tensor maximum(const at::Tensor& x);

// x [N, C] bf16, contiguous, in the forms asked for; codes and scales as format.hpp defines them, the same on every
// device. `maximum_of_x`: maximum(x), if the caller has it; read by kTensorwise alone.
CastMatrix cast(const at::Tensor& x, Format format, Scaling scaling, Forms forms, const at::Tensor& maximum_of_x = {});

// The same on CPUs, number by number.
namespace reference {
at::Tensor maximum(const at::Tensor& x);
CastMatrix cast(const at::Tensor& x, Format format, Scaling scaling, Forms forms, const at::Tensor& maximum_of_x = {});
}  // namespace reference

}  // namespace mpzero::model::fp8
