#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mpzero::model::fp8 {

// FP8 matrix [M, K], contiguous along the inner dimension K of its matmul. Hopper requires this layout for both
// operands.
struct Matrix {
  at::Tensor codes;          // [M, K], float8_e4m3fn or float8_e5m2
  at::Tensor scale_inverse;  // fp32 dequantization scale: [], or [M] with one scale per row

  bool defined() const { return codes.defined(); }
  bool is_rowwise() const { return scale_inverse.dim() == 1; }
  // Returns rows [begin, begin + count) of the matrix.
  Matrix narrow(int64_t begin, int64_t count) const;
};

// Returns the matrix dequantized to bf16. The result is exact except for values that are subnormal in bf16.
at::Tensor values(const Matrix& matrix);

}  // namespace mpzero::model::fp8
