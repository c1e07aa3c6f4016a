#include "model/kernels/rms_norm.hpp"

#include <ATen/record_function.h>

#include "model/kernels/accumulate_type.hpp"
#include "model/kernels/cuda.hpp"

namespace mpzero::model {

RmsNormOutput rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps) {
  RECORD_FUNCTION("mpzero::rms_norm_forward", (std::vector<c10::IValue>{x}));
  return cuda::has_kernels(x) ? cuda::rms_norm_forward(x, weight, eps) : reference::rms_norm_forward(x, weight, eps);
}

RmsNormGradients rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                   const at::Tensor& rstd, const at::Tensor& dresidual, bool with_y) {
  RECORD_FUNCTION("mpzero::rms_norm_backward", (std::vector<c10::IValue>{x, dresidual, with_y}));
  return cuda::has_kernels(x) ? cuda::rms_norm_backward(dy, x, weight, rstd, dresidual, with_y)
                              : reference::rms_norm_backward(dy, x, weight, rstd, dresidual, with_y);
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
