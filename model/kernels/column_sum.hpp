#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model {

// x [N, C], contiguous -> [R, C], fp32 (fp64 for fp64): parts whose sum over R is the sum over the N rows of x. Which
// rows make a part, and in which order they are summed, is fixed. R is 0 where N is.
at::Tensor column_sum_rows(const at::Tensor& x);

// The same out of ATen operators, on any device.
namespace reference {
at::Tensor column_sum_rows(const at::Tensor& x);
}  // namespace reference

}  // namespace mpzero::model
