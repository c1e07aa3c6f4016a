#include "model/kernels/column_sum.hpp"

#include <ATen/ops/empty.h>
#include <ATen/record_function.h>

#include "model/kernels/accumulate_type.hpp"
#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cuda.hpp"

namespace mpzero::model {

at::Tensor column_sum_rows(const at::Tensor& x) {
  RECORD_FUNCTION("mpzero::column_sum", (std::vector<c10::IValue>{x}));
  if (cuda::has_kernels(x)) return cuda::column_sum_rows(x);
  if (!cpu::has_kernels(x)) return reference::column_sum_rows(x);
  at::Tensor sums = at::empty({cpu::partial_sums(x.size(0)), x.size(1)}, x.options().dtype(at::kFloat));
  cpu::column_sum(x, sums);
  return sums;
}

namespace reference {

at::Tensor column_sum_rows(const at::Tensor& x) { return x.sum(0, true, accumulate_type(x.scalar_type())); }

}  // namespace reference
}  // namespace mpzero::model
