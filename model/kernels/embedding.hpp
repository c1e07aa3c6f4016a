#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model {

// Adds values[i] to row rows[i] of weight_gradient, for weight_gradient [V, H], rows [N] int64 and values [N, H]. All
// values of a row are summed in order, in fp32 (fp64 for fp64 inputs), and added once, so results are bitwise
// reproducible.
void embedding_backward(const at::Tensor& weight_gradient, const at::Tensor& rows, const at::Tensor& values);

// Reference implementation with ATen operators, bitwise reproducible only on the CPU.
namespace reference {
void embedding_backward(const at::Tensor& weight_gradient, const at::Tensor& rows, const at::Tensor& values);
}  // namespace reference

}  // namespace mpzero::model
