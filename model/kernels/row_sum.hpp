#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model {

// out = the sum over the rows of `rows`, or out += it: rows [R, H] fp32 or fp64, out [H] of any floating type. The sum
// has a fixed order; R is 0 where there is nothing to add up.
void row_sum(const at::Tensor& rows, const at::Tensor& out, bool overwrite);

// The same out of ATen operators, on any device.
namespace reference {
void row_sum(const at::Tensor& rows, const at::Tensor& out, bool overwrite);
}  // namespace reference

}  // namespace mpzero::model
