#include "model/kernels/swiglu.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/record_function.h>

#include "model/kernels/cuda.hpp"

namespace mpzero::model {

at::Tensor swiglu_forward(const at::Tensor& gate_up) {
  RECORD_FUNCTION("mpzero::swiglu_forward", (std::vector<c10::IValue>{gate_up}));
  return cuda::has_kernels(gate_up) ? cuda::swiglu_forward(gate_up) : reference::swiglu_forward(gate_up);
}

at::Tensor swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up) {
  RECORD_FUNCTION("mpzero::swiglu_backward", (std::vector<c10::IValue>{gate_up}));
  return cuda::has_kernels(gate_up) ? cuda::swiglu_backward(dy, gate_up) : reference::swiglu_backward(dy, gate_up);
}

SwigluRecomputed swiglu_backward_recompute(const at::Tensor& dy, const at::Tensor& gate_up) {
  RECORD_FUNCTION("mpzero::swiglu_backward_recompute", (std::vector<c10::IValue>{gate_up}));
  return cuda::has_kernels(gate_up)
             ? cuda::swiglu_backward_recompute(dy, gate_up)
             : SwigluRecomputed{reference::swiglu_backward(dy, gate_up), reference::swiglu_forward(gate_up)};
}

namespace reference {

at::Tensor swiglu_forward(const at::Tensor& gate_up) {
  const int64_t inner = gate_up.size(1) / 2;
  return at::silu(gate_up.narrow(1, 0, inner)).mul_(gate_up.narrow(1, inner, inner));
}

at::Tensor swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up) {
  const int64_t inner = gate_up.size(1) / 2;
  const at::Tensor gate = gate_up.narrow(1, 0, inner);
  const at::Tensor up = gate_up.narrow(1, inner, inner);
  at::Tensor out = at::empty_like(gate_up);
  out.narrow(1, 0, inner).copy_(at::silu_backward(dy.mul(up), gate));
  out.narrow(1, inner, inner).copy_(at::silu(gate).mul_(dy));
  return out;
}

}  // namespace reference
}  // namespace mpzero::model
