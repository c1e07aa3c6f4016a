#include "model/kernels/embedding.hpp"

#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cuda.hpp"
#include "model/operation/accumulate_type.hpp"
#include "model/operation/launch.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::model {

void embedding_backward(const at::Tensor& weight_gradient, const at::Tensor& rows, const at::Tensor& values) {
  const OperationScope scope("embedding_backward", [&] {
    Operation operation = on_matrix(values.scalar_type(), values.size(0), values.size(1), 3);
    operation.sizes.push_back(weight_gradient.size(0));
    return operation;
  });
  if (!has_kernels(values) || !has_kernels(weight_gradient) || !weight_gradient.is_contiguous()) {
    if (!is_simulated(values.device())) reference::embedding_backward(weight_gradient, rows, values);
    return;
  }
  // The GPU kernel sorts rows and positions, with one input and one output array for each.
  if (uses_gpu_kernels(values.device())) borrow(values, 4 * static_cast<int64_t>(sizeof(int64_t)) * rows.numel());
  launch(
      values,
      [&] { cuda::embedding_backward(weight_gradient, rows, at::arange(rows.numel(), rows.options()), values); },
      [&] { cpu::embedding_backward(weight_gradient, rows.contiguous(), values.contiguous()); });
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
