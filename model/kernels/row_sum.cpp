#include "model/kernels/row_sum.hpp"

#include <ATen/record_function.h>

#include <vector>

#include "model/kernels/cuda.hpp"

namespace mpzero::model {
namespace {

std::vector<c10::IValue> outs_of(std::span<const RowSum> sums) {
  std::vector<c10::IValue> outs;
  for (const RowSum& sum : sums) outs.emplace_back(sum.out);
  return outs;
}

}  // namespace

void row_sum(const at::Tensor& rows, const at::Tensor& out, bool overwrite) {
  const RowSum sum{rows, out, overwrite};
  row_sums({&sum, 1});
}

void row_sums(std::span<const RowSum> sums) {
  RECORD_FUNCTION("mpzero::row_sums", outs_of(sums));
  std::vector<RowSum> on_gpu;
  for (const RowSum& sum : sums) {
    if (sum.rows.scalar_type() == at::kFloat && cuda::has_kernels(sum.rows) && cuda::has_kernels(sum.out)) {
      on_gpu.push_back(sum);
    } else {
      reference::row_sum(sum.rows, sum.out, sum.overwrite);
    }
  }
  if (!on_gpu.empty()) cuda::row_sums(on_gpu);
}

namespace reference {

void row_sum(const at::Tensor& rows, const at::Tensor& out, bool overwrite) {
  const at::Tensor sum = rows.sum(0);
  if (overwrite) {
    out.copy_(sum);
  } else {
    out.add_(sum);
  }
}

}  // namespace reference
}  // namespace mpzero::model
