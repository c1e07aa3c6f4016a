#include "model/kernels/row_sum.hpp"

#include "model/kernels/cuda.hpp"

namespace mpzero::model {

void row_sum(const at::Tensor& rows, const at::Tensor& out, bool overwrite) {
  if (rows.scalar_type() == at::kFloat && cuda::has_kernels(rows) && cuda::has_kernels(out)) {
    cuda::row_sum(rows, out, overwrite);
  } else {
    reference::row_sum(rows, out, overwrite);
  }
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
