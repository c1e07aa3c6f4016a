#include "model/kernels/row_sum.hpp"

#include <algorithm>
#include <vector>

#include "model/kernels/cuda.hpp"
#include "model/operation/launch.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::model {
namespace {

Operation operation_of(std::span<const RowSum> sums) {
  Operation operation;
  for (const RowSum& sum : sums) {
    operation.type = sum.out.scalar_type();
    operation.sums.push_back(sum.out.numel());
    operation.partials = std::max(operation.partials, sum.rows.size(0));
  }
  return operation;
}

}  // namespace

void row_sum(const at::Tensor& rows, const at::Tensor& out, bool overwrite) {
  const RowSum sum{rows, out, overwrite};
  row_sums({&sum, 1});
}

void row_sums(std::span<const RowSum> sums) {
  const OperationScope scope(OperationKind::kRowSums, [&] { return operation_of(sums); });
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
