#include "model/kernels/column_sum.hpp"

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cuda.hpp"
#include "model/operation/accumulate_type.hpp"
#include "model/operation/launch.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::model {

at::Tensor column_sum_rows(const at::Tensor& x) {
  const OperationScope scope("column_sum", [&] { return on_matrix(x.scalar_type(), x.size(0), x.size(1), 1); });
  if (!has_kernels(x)) return reference::column_sum_rows(x);
  at::Tensor sums = partial_sums(x, x.size(0), x.size(1));
  launch(x, [&] { sums = cuda::column_sum_rows(x); }, [&] { cpu::column_sum(x, sums); });
  return sums;
}

namespace reference {

at::Tensor column_sum_rows(const at::Tensor& x) { return x.sum(0, true, accumulate_type(x.scalar_type())); }

}  // namespace reference
}  // namespace mpzero::model
