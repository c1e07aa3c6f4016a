#pragma once

#include <ATen/core/Tensor.h>

#include "model/fp8/format.hpp"

// Tensorwise casts of matrices that are sharded over ranks. FP8 data and scales are identical to those of cast() on the
// whole matrix.
namespace mpzero::model::fp8 {

// Sets `largest` (fp32 scalar) to max(largest, max |x|) for x (bf16 [n], contiguous). NaN propagates.
void raise_maximum(const at::Tensor& x, const at::Tensor& largest);

// Writes each matrix's amax over its parts, and the dequantization scale for this amax, to `scales` (fp32 [2,
// matrices]). `maxima` (fp32 [parts, matrices]): amax of each part. Both tensors are contiguous.
void scales_out(const at::Tensor& maxima, Format format, const at::Tensor& scales);

// Casts x (bf16 [n]) to `codes` (FP8 bytes [n]). x is part of a matrix with the amax `maximum` (fp32 scalar). Both
// tensors are contiguous.
void encode_out(const at::Tensor& x, const at::Tensor& maximum, Format format, const at::Tensor& codes);

// Returns the contiguous transpose [C, N] of `codes` [N, C] (contiguous, any 8-bit dtype).
at::Tensor transposed(const at::Tensor& codes);

// Reference implementations for the CPU.
namespace reference {
void raise_maximum(const at::Tensor& x, const at::Tensor& largest);
void scales_out(const at::Tensor& maxima, Format format, const at::Tensor& scales);
void encode_out(const at::Tensor& x, const at::Tensor& maximum, Format format, const at::Tensor& codes);
at::Tensor transposed(const at::Tensor& codes);
}  // namespace reference

}  // namespace mpzero::model::fp8
