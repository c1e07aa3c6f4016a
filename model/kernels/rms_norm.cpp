#include "model/kernels/rms_norm.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cuda.hpp"
#include "model/operation/accumulate_type.hpp"
#include "model/operation/launch.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::model {
namespace {

// Returns contiguous rows, as the kernels require.
at::Tensor rows_of(const at::Tensor& x) {
  return x.defined() ? x.reshape({-1, x.size(-1)}).contiguous() : at::Tensor();
}

Operation on_rows(const at::Tensor& x, double passes) {
  return on_matrix(x.scalar_type(), x.numel() / x.size(-1), x.size(-1), passes);
}

}  // namespace

RmsNormOutput rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& maximum) {
  const OperationScope scope("rms_norm_forward", [&] { return on_rows(x, 2); });
  if (!has_kernels(x)) {
    RmsNormOutput made = reference::rms_norm_forward(x, weight, eps);
    cpu::raise_maximum(maximum, made.y);
    return made;
  }
  const at::Tensor rows = rows_of(x);
  at::Tensor y = at::empty_like(rows), rstd = at::empty({rows.size(0)}, x.options().dtype(at::kFloat));
  launch(
      x, [&] { cuda::rms_norm_forward(rows, weight, eps, maximum, y, rstd); },
      [&] {
        cpu::rms_norm_forward(rows, weight, eps, y, rstd);
        cpu::raise_maximum(maximum, y);
      });
  return {y.view(x.sizes()), rstd.view(x.sizes().slice(0, x.dim() - 1))};
}

RmsNormGradients rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                   const at::Tensor& rstd, const at::Tensor& dresidual, bool with_y,
                                   const at::Tensor& maximum) {
  const OperationScope scope("rms_norm_backward",
                             [&] { return on_rows(x, 3 + (dresidual.defined() ? 1 : 0) + (with_y ? 1 : 0)); });
  if (!has_kernels(x)) {
    RmsNormGradients made = reference::rms_norm_backward(dy, x, weight, rstd, dresidual, with_y);
    cpu::raise_maximum(maximum, made.dx);
    return made;
  }
  const at::Tensor rows = rows_of(x), d = rows_of(dy), residual = rows_of(dresidual);
  at::Tensor dx = at::empty_like(rows), y = with_y ? at::empty_like(rows) : at::Tensor();
  at::Tensor dweight_rows = partial_sums(x, rows.size(0), rows.size(1));
  launch(
      x, [&] { dweight_rows = cuda::rms_norm_backward(d, rows, weight, rstd, residual, maximum, dx, y); },
      [&] {
        cpu::rms_norm_backward(d, rows, weight, rstd.contiguous(), residual, dx, dweight_rows, y);
        cpu::raise_maximum(maximum, dx);
      });
  return {dx.view(x.sizes()), dweight_rows, with_y ? y.view(x.sizes()) : at::Tensor()};
}

namespace reference {

RmsNormOutput rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(accumulate_type(x.scalar_type()));
  const at::Tensor rstd = wide.square().mean(-1).add_(eps).rsqrt_();
  return {wide.mul(rstd.unsqueeze(-1)).to(x.scalar_type()).mul(weight), rstd};
}

RmsNormGradients rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                   const at::Tensor& rstd, const at::Tensor& dresidual, bool with_y) {
  const at::ScalarType wide = accumulate_type(x.scalar_type());
  const at::Tensor scale = rstd.unsqueeze(-1);
  const at::Tensor normalized = x.to(wide).mul(scale);
  const at::Tensor dy_wide = dy.to(wide);
  const at::Tensor rounded = normalized.to(x.scalar_type());
  const at::Tensor dweight = dy_wide.mul(rounded.to(wide)).reshape({-1, x.size(-1)}).sum(0, true);
  const at::Tensor g = dy_wide.mul(weight.to(wide));
  at::Tensor dx = g.sub(normalized.mul(g.mul(normalized).mean(-1, true))).mul_(scale);
  if (dresidual.defined()) dx.add_(dresidual);
  return {dx.to(x.scalar_type()), dweight, with_y ? rounded.mul(weight) : at::Tensor()};
}

}  // namespace reference
}  // namespace mpzero::model
