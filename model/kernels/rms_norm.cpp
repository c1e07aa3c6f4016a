#include "model/kernels/rms_norm.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/record_function.h>

#include "model/kernels/accumulate_type.hpp"
#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cuda.hpp"

namespace mpzero::model {
namespace {

// Contiguous rows, as the kernels for CPUs read them.
at::Tensor rows_of(const at::Tensor& x) {
  return x.defined() ? x.reshape({-1, x.size(-1)}).contiguous() : at::Tensor();
}

RmsNormOutput cpu_forward(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor rows = rows_of(x);
  at::Tensor y = at::empty_like(rows), rstd = at::empty({rows.size(0)}, x.options().dtype(at::kFloat));
  cpu::rms_norm_forward(rows, weight, eps, y, rstd);
  return {y.view(x.sizes()), rstd.view(x.sizes().slice(0, x.dim() - 1))};
}

RmsNormGradients cpu_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& rstd, const at::Tensor& dresidual, bool with_y) {
  const at::Tensor rows = rows_of(x);
  at::Tensor dx = at::empty_like(rows), y = with_y ? at::empty_like(rows) : at::Tensor();
  at::Tensor dweight_rows = at::empty({cpu::partial_sums(rows.size(0)), rows.size(1)}, x.options().dtype(at::kFloat));
  cpu::rms_norm_backward(rows_of(dy), rows, weight, rstd.contiguous(), rows_of(dresidual), dx, dweight_rows, y);
  return {dx.view(x.sizes()), dweight_rows, with_y ? y.view(x.sizes()) : at::Tensor()};
}

}  // namespace

RmsNormOutput rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& maximum) {
  RECORD_FUNCTION("mpzero::rms_norm_forward", (std::vector<c10::IValue>{x}));
  if (cuda::has_kernels(x)) return cuda::rms_norm_forward(x, weight, eps, maximum);
  RmsNormOutput made = cpu::has_kernels(x) ? cpu_forward(x, weight, eps) : reference::rms_norm_forward(x, weight, eps);
  cpu::raise_maximum(maximum, made.y);
  return made;
}

RmsNormGradients rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                   const at::Tensor& rstd, const at::Tensor& dresidual, bool with_y,
                                   const at::Tensor& maximum) {
  RECORD_FUNCTION("mpzero::rms_norm_backward", (std::vector<c10::IValue>{x, dresidual, with_y}));
  if (cuda::has_kernels(x)) return cuda::rms_norm_backward(dy, x, weight, rstd, dresidual, with_y, maximum);
  RmsNormGradients made = cpu::has_kernels(x) ? cpu_backward(dy, x, weight, rstd, dresidual, with_y)
                                              : reference::rms_norm_backward(dy, x, weight, rstd, dresidual, with_y);
  cpu::raise_maximum(maximum, made.dx);
  return made;
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
