#pragma once

#include <ATen/core/Tensor.h>

#include "model/fp8/format.hpp"

// Tensorwise casts of matrices that are sharded over ranks: the same FP8 data and scales as cast() of the whole matrix.
namespace mpzero::model::fp8 {

// largest (fp32 scalar) <- max(largest, the largest magnitude of x (bf16 [n], contiguous)). NaN is larger than all
// numbers.
void raise_maximum(const at::Tensor& x, const at::Tensor& largest);

// scales (fp32 [2, matrices]) <- each matrix's maximum over its parts, and the inverse of its scale in this format.
// maxima (fp32 [parts, matrices]): the largest magnitude of each part. Both contiguous.
void scales_out(const at::Tensor& maxima, Format format, const at::Tensor& scales);

// codes (FP8 bytes [n]) <- x (bf16 [n]), part of a matrix whose largest magnitude is `maximum` (fp32 scalar). Both
// contiguous.
void encode_out(const at::Tensor& x, const at::Tensor& maximum, Format format, const at::Tensor& codes);

// codes [N, C], contiguous, of any 8-bit dtype -> [C, N], contiguous.
at::Tensor transposed(const at::Tensor& codes);

// The same on CPUs.
namespace reference {
void raise_maximum(const at::Tensor& x, const at::Tensor& largest);
void scales_out(const at::Tensor& maxima, Format format, const at::Tensor& scales);
void encode_out(const at::Tensor& x, const at::Tensor& maximum, Format format, const at::Tensor& codes);
at::Tensor transposed(const at::Tensor& codes);
}  // namespace reference

}  // namespace mpzero::model::fp8
