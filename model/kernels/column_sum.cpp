#include "model/kernels/column_sum.hpp"

#include <ATen/record_function.h>

#include "model/kernels/accumulate_type.hpp"
#include "model/kernels/cuda.hpp"

namespace mpzero::model {

at::Tensor column_sum_rows(const at::Tensor& x) {
  RECORD_FUNCTION("mpzero::column_sum", (std::vector<c10::IValue>{x}));
  return cuda::has_kernels(x) ? cuda::column_sum_rows(x) : reference::column_sum_rows(x);
}

namespace reference {

at::Tensor column_sum_rows(const at::Tensor& x) { return x.sum(0, true, accumulate_type(x.scalar_type())); }

}  // namespace reference
}  // namespace mpzero::model
