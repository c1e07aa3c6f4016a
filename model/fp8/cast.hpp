#pragma once

#include <ATen/core/Tensor.h>

#include "model/fp8/matrix.hpp"
#include "model/fp8/recipe.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::model::fp8 {

struct CastMatrix {
  Matrix rows;     // [N, C]
  Matrix columns;  // [C, N]
  // fp32: amax of x or, with rowwise scaling, of each row of x (each column if only `columns` is requested).
  at::Tensor maxima;
};

// Values of Operation::copy_share for casts and transposes: the fraction of the device's copy rate that they reach,
// measured on H100 and H200 (bench/RESULTS.md, "FP8").
constexpr double kCopyShare = 0.75, kRowwiseCopyShare = 0.5;

// Returns the amax of x (bf16, any device) as an fp32 scalar, or NaN if x contains NaN.
at::Tensor maximum(const at::Tensor& x);

// Casts x [N, C] (bf16, contiguous) to the requested forms. FP8 data and scales follow format.hpp and do not depend on
// the device. `maximum_of_x`: precomputed maximum(x); only for kTensorwise.
CastMatrix cast(const at::Tensor& x, Format format, Scaling scaling, Forms forms, const at::Tensor& maximum_of_x = {});

// Scalar reference implementations for the CPU.
namespace reference {
at::Tensor maximum(const at::Tensor& x);
CastMatrix cast(const at::Tensor& x, Format format, Scaling scaling, Forms forms, const at::Tensor& maximum_of_x = {});
}  // namespace reference

}  // namespace mpzero::model::fp8
