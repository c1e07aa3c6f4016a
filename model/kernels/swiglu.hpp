#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model {

// silu(gate) * up, where gate_up [N, 2I] contains first the gates [N, I], then the ups [N, I] -> [N, I] (Shazeer, 2020,
// arXiv:2002.05202; silu(x) = x * sigmoid(x)).
// `maximum`, here and below: if defined, an fp32 scalar that is raised to the largest magnitude of the result (NaN if
// it contains NaN).
at::Tensor swiglu_forward(const at::Tensor& gate_up, const at::Tensor& maximum = {});
// dy [N, I] -> d(gate_up) [N, 2I].
at::Tensor swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up, const at::Tensor& maximum = {});

struct SwigluRecomputed {
  at::Tensor d_gate_up;  // [N, 2I]
  at::Tensor y;          // [N, I], with the bits of swiglu_forward
};
// Both in one pass, for a forward that did not keep its output.
SwigluRecomputed swiglu_backward_recompute(const at::Tensor& dy, const at::Tensor& gate_up,
                                           const at::Tensor& maximum = {}, const at::Tensor& maximum_of_y = {});

// The same with ATen operators, on any device.
namespace reference {
at::Tensor swiglu_forward(const at::Tensor& gate_up);
at::Tensor swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up);
}  // namespace reference

}  // namespace mpzero::model
