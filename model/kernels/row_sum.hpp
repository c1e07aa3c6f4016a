#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace mpzero::model {

// out = the sum over the rows of `rows`, or out += it: rows [R, H] fp32 or fp64 with dense rows, out [H], contiguous,
// of any floating type. The order of the additions is fixed.
struct RowSum {
  at::Tensor rows, out;
  bool overwrite;
};
void row_sum(const at::Tensor& rows, const at::Tensor& out, bool overwrite);
// Several independent ones; on a GPU as few kernels as possible, for each of these sums is small.
void row_sums(std::span<const RowSum> sums);

// The same out of ATen operators, on any device.
namespace reference {
void row_sum(const at::Tensor& rows, const at::Tensor& out, bool overwrite);
}  // namespace reference

}  // namespace mpzero::model
