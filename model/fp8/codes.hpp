#pragma once

#include <ATen/core/Tensor.h>

#include "model/fp8/format.hpp"

// Casts of matrices that share one scale (Scaling::kTensorwise), of which each rank has a part: the same codes and
// scales as cast() makes of the whole.
namespace mpzero::model::fp8 {

// largest (fp32 scalar) <- the larger one of it and the largest magnitude of x (bf16 [n], contiguous). NaN is larger
// than all numbers.
void raise_maximum(const at::Tensor& x, const at::Tensor& largest);

// scales (fp32 [2, matrices]) <- of matrices whose parts have these largest magnitudes (fp32 [parts, matrices]): the
// largest of each, and the inverse of the scale that it has in this format. Both contiguous.
void scales_out(const at::Tensor& maxima, Format format, const at::Tensor& scales);

// codes (bytes [n]) <- x (bf16 [n]), a part of a matrix with this largest magnitude (fp32 scalar). Both contiguous.
void encode_out(const at::Tensor& x, const at::Tensor& maximum, Format format, const at::Tensor& codes);

// codes [N, C], contiguous, of any type of 8 bits -> [C, N], contiguous.
at::Tensor transposed(const at::Tensor& codes);

// The same on CPUs.
namespace reference {
void raise_maximum(const at::Tensor& x, const at::Tensor& largest);
void scales_out(const at::Tensor& maxima, Format format, const at::Tensor& scales);
void encode_out(const at::Tensor& x, const at::Tensor& maximum, Format format, const at::Tensor& codes);
at::Tensor transposed(const at::Tensor& codes);
}  // namespace reference

}  // namespace mpzero::model::fp8
