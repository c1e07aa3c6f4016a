#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace mpzero::model {

// Arguments of a sum over the rows of `rows` that overwrites `out` or is added to `out`. `rows` is [R, H], fp32 or
// fp64, with dense rows; `out` is [H], contiguous, of any floating-point dtype. The order of additions is fixed.
struct RowSum {
  at::Tensor rows, out;
  bool overwrite;
};
void row_sum(const at::Tensor& rows, const at::Tensor& out, bool overwrite);
// Computes several independent sums. On a GPU, the sums are combined into as few kernels as possible, because each sum
// is small.
void row_sums(std::span<const RowSum> sums);

// Reference implementation with ATen operators, for any device.
namespace reference {
void row_sum(const at::Tensor& rows, const at::Tensor& out, bool overwrite);
}  // namespace reference

}  // namespace mpzero::model
