#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model {

// x [N, C], contiguous -> [R, C], fp32 (fp64 for fp64): partial sums whose sum over R is the sum over the N rows of x.
// The rows of each partial sum and the order of additions are fixed. R is 0 if N is 0.
at::Tensor column_sum_rows(const at::Tensor& x);

// The same with ATen operators, on any device.
namespace reference {
at::Tensor column_sum_rows(const at::Tensor& x);
}  // namespace reference

}  // namespace mpzero::model
