#include "model/kernels/embedding.hpp"

#include <ATen/ops/_unique2.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include "model/kernels/accumulate_type.hpp"
#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cuda.hpp"

namespace mpzero::model {

void embedding_backward(const at::Tensor& weight_gradient, const at::Tensor& rows, const at::Tensor& values) {
  RECORD_FUNCTION("mpzero::embedding_backward", (std::vector<c10::IValue>{weight_gradient, values}));
  if (cuda::has_kernels(values) && cuda::has_kernels(weight_gradient)) {
    cuda::embedding_backward(weight_gradient, rows, values);
  } else if (cpu::has_kernels(values) && cpu::has_kernels(weight_gradient) && weight_gradient.is_contiguous()) {
    cpu::embedding_backward(weight_gradient, rows.contiguous(), values.contiguous());
  } else {
    reference::embedding_backward(weight_gradient, rows, values);
  }
}

namespace reference {

void embedding_backward(const at::Tensor& weight_gradient, const at::Tensor& rows, const at::Tensor& values) {
  const auto [distinct, inverse, counts] = at::_unique2(rows, true, true);
  const at::ScalarType wide = accumulate_type(values.scalar_type());
  at::Tensor sums = at::zeros({distinct.size(0), values.size(1)}, values.options().dtype(wide));
  sums.index_add_(0, inverse, values.to(wide));
  weight_gradient.index_add_(0, distinct, sums.to(weight_gradient.scalar_type()));
}

}  // namespace reference
}  // namespace mpzero::model
