#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model {

// weight_gradient[rows[i]] += values[i]: weight_gradient [V, H], rows [N] int64, values [N, H]. The values of one row
// are summed in their order, in fp32 (fp64 for fp64), and added once: the bits of the result are reproducible.
void embedding_backward(const at::Tensor& weight_gradient, const at::Tensor& rows, const at::Tensor& values);

// The same with ATen operators. Reproducible bits on the CPU only.
namespace reference {
void embedding_backward(const at::Tensor& weight_gradient, const at::Tensor& rows, const at::Tensor& values);
}  // namespace reference

}  // namespace mpzero::model
