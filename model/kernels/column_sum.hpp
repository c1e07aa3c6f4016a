#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model {

// Returns partial sums [R, C] of x ([N, C], contiguous) in fp32 (fp64 for fp64 inputs). The sum of the R partial sums
// is the sum over the N rows of x. The assignment of rows to partial sums and the order of additions are fixed. R is 0
// if N is 0.
at::Tensor column_sum_rows(const at::Tensor& x);

// Reference implementation with ATen operators, for any device.
namespace reference {
at::Tensor column_sum_rows(const at::Tensor& x);
}  // namespace reference

}  // namespace mpzero::model
