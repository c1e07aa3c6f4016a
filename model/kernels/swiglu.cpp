#include "model/kernels/swiglu.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cuda.hpp"
#include "model/operation/launch.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::model {
namespace {

at::Tensor result_of(const at::Tensor& gate_up) {
  return at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options());
}

// `passes`: number of reads and writes of matrices of the result's shape.
Operation on_result(const at::Tensor& gate_up, double passes) {
  return on_matrix(gate_up.scalar_type(), gate_up.size(0), gate_up.size(1) / 2, passes);
}

// If `y` is defined, it receives the forward output.
at::Tensor backward(const at::Tensor& dy_in, const at::Tensor& gate_up, const at::Tensor& maximum,
                    const at::Tensor& maximum_of_y, at::Tensor& y) {
  const at::Tensor dy = dy_in.contiguous();
  at::Tensor d_gate_up = at::empty(gate_up.sizes(), gate_up.options());
  launch(
      gate_up, [&] { cuda::swiglu_backward(dy, gate_up, maximum, maximum_of_y, d_gate_up, y); },
      [&] {
        cpu::swiglu_backward(dy, gate_up.contiguous(), d_gate_up, y);
        cpu::raise_maximum(maximum, d_gate_up);
        cpu::raise_maximum(maximum_of_y, y);
      });
  return d_gate_up;
}

}  // namespace

at::Tensor swiglu_forward(const at::Tensor& gate_up, const at::Tensor& maximum) {
  const OperationScope scope("swiglu_forward", [&] { return on_result(gate_up, 3); });
  if (!has_kernels(gate_up)) {
    at::Tensor y = reference::swiglu_forward(gate_up);
    cpu::raise_maximum(maximum, y);
    return y;
  }
  at::Tensor y = result_of(gate_up);
  launch(
      gate_up, [&] { cuda::swiglu_forward(gate_up, maximum, y); },
      [&] {
        cpu::swiglu_forward(gate_up.contiguous(), y);
        cpu::raise_maximum(maximum, y);
      });
  return y;
}

at::Tensor swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up, const at::Tensor& maximum) {
  const OperationScope scope("swiglu_backward", [&] { return on_result(gate_up, 5); });
  at::Tensor no_y;
  if (has_kernels(gate_up)) return backward(dy, gate_up, maximum, at::Tensor(), no_y);
  at::Tensor d_gate_up = reference::swiglu_backward(dy, gate_up);
  cpu::raise_maximum(maximum, d_gate_up);
  return d_gate_up;
}

SwigluRecomputed swiglu_backward_recompute(const at::Tensor& dy, const at::Tensor& gate_up, const at::Tensor& maximum,
                                           const at::Tensor& maximum_of_y) {
  const OperationScope scope("swiglu_backward_recompute", [&] {
    Operation operation = on_result(gate_up, 6);
    operation.kin = "swiglu_backward";
    return operation;
  });
  if (has_kernels(gate_up)) {
    at::Tensor y = result_of(gate_up);
    at::Tensor d_gate_up = backward(dy, gate_up, maximum, maximum_of_y, y);
    return {d_gate_up, y};
  }
  SwigluRecomputed both{reference::swiglu_backward(dy, gate_up), reference::swiglu_forward(gate_up)};
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
