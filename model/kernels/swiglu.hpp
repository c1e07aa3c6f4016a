#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model {

// Returns silu(gate) * up, [N, I], for gate_up [N, 2 * I] with all gate values before all up values (Shazeer, 2020,
// arXiv:2002.05202; silu(x) = x * sigmoid(x)).
// `maximum`, in all functions: if defined, an fp32 scalar that is updated to max(maximum, max |result|); NaN
// propagates.
at::Tensor swiglu_forward(const at::Tensor& gate_up, const at::Tensor& maximum = {});
// Returns the gradient of gate_up, [N, 2 * I], for dy [N, I].
at::Tensor swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up, const at::Tensor& maximum = {});

struct SwigluRecomputed {
  at::Tensor d_gate_up;  // [N, 2 * I]
  at::Tensor y;          // [N, I]: output of swiglu_forward (bitwise identical)
};
// Computes the gradient and the forward output in one pass, for activation checkpointing.
SwigluRecomputed swiglu_backward_recompute(const at::Tensor& dy, const at::Tensor& gate_up,
                                           const at::Tensor& maximum = {}, const at::Tensor& maximum_of_y = {});

// Reference implementations with ATen operators, for any device.
namespace reference {
at::Tensor swiglu_forward(const at::Tensor& gate_up);
at::Tensor swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up);
}  // namespace reference

}  // namespace mpzero::model
