#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mpzero::model::fp8 {

// A matrix [M, K] in FP8, contiguous along the inner dimension K of its product, as Hopper's products need both
// operands.
struct Matrix {
  at::Tensor codes;          // [M, K], float8_e4m3fn or float8_e5m2
  at::Tensor scale_inverse;  // fp32, a scalar [] or one for each row [M]: the codes times it are the values

  bool defined() const { return codes.defined(); }
  bool is_rowwise() const { return scale_inverse.dim() == 1; }
  // Rows [begin, begin + count).
  Matrix narrow(int64_t begin, int64_t count) const;
};

// The values in bf16: exact, but for numbers below 2^-133.
at::Tensor values(const Matrix& matrix);

}  // namespace mpzero::model::fp8
