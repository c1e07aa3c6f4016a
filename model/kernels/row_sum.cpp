#include "model/kernels/row_sum.hpp"

#include <algorithm>
#include <vector>

#include "model/kernels/cuda.hpp"
#include "model/operation/accumulate_type.hpp"
#include "model/operation/launch.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::model {
namespace {

Operation operation_of(std::span<const RowSum> sums) {
  Operation operation{.type = at::kFloat};
  int64_t partials = 0;
  for (const RowSum& sum : sums) {
    operation.type = accumulate_type(sum.out.scalar_type());  // reads fp32 for any output dtype
    operation.sizes.push_back(sum.out.numel());
    partials = std::max(partials, sum.rows.size(0));
  }
  for (const int64_t columns : operation.sizes) operation.bytes += bytes_of(operation.type, {partials, columns});
  return operation;
}

}  // namespace

void row_sum(const at::Tensor& rows, const at::Tensor& out, bool overwrite) {
  const RowSum sum{rows, out, overwrite};
  row_sums({&sum, 1});
}

void row_sums(std::span<const RowSum> sums) {
  const OperationScope scope("row_sums", [&] { return operation_of(sums); });
  std::vector<RowSum> on_gpu;
  for (const RowSum& sum : sums) {
    const bool fused = sum.rows.scalar_type() == at::kFloat && has_kernels(sum.out);
    if (fused && uses_gpu_kernels(sum.rows.device())) {
      if (sum.rows.is_cuda()) on_gpu.push_back(sum);
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
