#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace mpzero::model {

// out = the sum over the rows of `rows`, or out += that sum: rows [R, H] fp32 or fp64 with dense rows, out [H],
// contiguous, of any floating dtype. The order of the additions is fixed.
struct RowSum {
  at::Tensor rows, out;
  bool overwrite;
};
void row_sum(const at::Tensor& rows, const at::Tensor& out, bool overwrite);
// Several independent sums; on a GPU with as few kernels as possible, because each sum is small.
void row_sums(std::span<const RowSum> sums);

// The same with ATen operators, on any device.
namespace reference {
void row_sum(const at::Tensor& rows, const at::Tensor& out, bool overwrite);
}  // namespace reference

}  // namespace mpzero::model
