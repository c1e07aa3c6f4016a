#include "model/kernels/swiglu.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/record_function.h>

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cuda.hpp"

namespace mpzero::model {
namespace {

at::Tensor result_of(const at::Tensor& gate_up) {
  return at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options());
}

SwigluRecomputed cpu_backward(const at::Tensor& dy, const at::Tensor& gate_up, bool with_y) {
  at::Tensor d_gate_up = at::empty(gate_up.sizes(), gate_up.options()), y = with_y ? result_of(gate_up) : at::Tensor();
  cpu::swiglu_backward(dy.contiguous(), gate_up.contiguous(), d_gate_up, y);
  return {d_gate_up, y};
}

}  // namespace

at::Tensor swiglu_forward(const at::Tensor& gate_up, const at::Tensor& maximum) {
  RECORD_FUNCTION("mpzero::swiglu_forward", (std::vector<c10::IValue>{gate_up}));
  if (cuda::has_kernels(gate_up)) return cuda::swiglu_forward(gate_up, maximum);
  at::Tensor y;
  if (cpu::has_kernels(gate_up)) {
    y = result_of(gate_up);
    cpu::swiglu_forward(gate_up.contiguous(), y);
  } else {
    y = reference::swiglu_forward(gate_up);
  }
  cpu::raise_maximum(maximum, y);
  return y;
}

at::Tensor swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up, const at::Tensor& maximum) {
  RECORD_FUNCTION("mpzero::swiglu_backward", (std::vector<c10::IValue>{gate_up}));
  if (cuda::has_kernels(gate_up)) return cuda::swiglu_backward(dy, gate_up, maximum);
  at::Tensor d_gate_up =
      cpu::has_kernels(gate_up) ? cpu_backward(dy, gate_up, false).d_gate_up : reference::swiglu_backward(dy, gate_up);
  cpu::raise_maximum(maximum, d_gate_up);
  return d_gate_up;
}

SwigluRecomputed swiglu_backward_recompute(const at::Tensor& dy, const at::Tensor& gate_up, const at::Tensor& maximum,
                                           const at::Tensor& maximum_of_y) {
  RECORD_FUNCTION("mpzero::swiglu_backward_recompute", (std::vector<c10::IValue>{gate_up}));
  if (cuda::has_kernels(gate_up)) return cuda::swiglu_backward_recompute(dy, gate_up, maximum, maximum_of_y);
  SwigluRecomputed both = cpu::has_kernels(gate_up) ? cpu_backward(dy, gate_up, true)
                                                    : SwigluRecomputed{reference::swiglu_backward(dy, gate_up),
                                                                       reference::swiglu_forward(gate_up)};
  cpu::raise_maximum(maximum, both.d_gate_up);
  cpu::raise_maximum(maximum_of_y, both.y);
  return both;
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
