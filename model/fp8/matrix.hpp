#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mpzero::model::fp8 {

// An FP8 matrix [M, K], contiguous along its product's inner dimension K, as Hopper requires of both operands.
struct Matrix {
  at::Tensor codes;          // [M, K], float8_e4m3fn or float8_e5m2
  at::Tensor scale_inverse;  // fp32 dequantization scale: [], or one per row [M]

  bool defined() const { return codes.defined(); }
  bool is_rowwise() const { return scale_inverse.dim() == 1; }
  // Rows [begin, begin + count).
  Matrix narrow(int64_t begin, int64_t count) const;
};

// Dequantizes to bf16: exact, except for numbers below 2^-133.
at::Tensor values(const Matrix& matrix);

}  // namespace mpzero::model::fp8
