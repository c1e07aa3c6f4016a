#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model {

struct RmsNormOutput {
  at::Tensor y;     // as x
  at::Tensor rstd;  // [...]: 1 / sqrt(mean(x^2) + eps) of each row, fp32 (fp64 for fp64)
};

struct RmsNormGradients {
  at::Tensor dx;            // as x
  at::Tensor dweight_rows;  // [R, H], fp32 (fp64 for fp64): their sum over R is the weight's gradient
  at::Tensor y;             // as x, with the bits of rms_norm_forward; undefined unless requested
};

// y = weight * (x * rstd): x [..., H], weight [H] (Zhang and Sennrich, 2019, arXiv:1910.07467). Computed in fp32; the
// normalized x is rounded to x's dtype before it is multiplied by the weight, as in transformers. `maximum`, if
// defined, is an fp32 scalar that is raised to the largest magnitude of y (NaN if y contains NaN).
RmsNormOutput rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps,
                               const at::Tensor& maximum = {});

// With h = x * rstd and g = dy * weight: dx = rstd * (g - h * mean(g * h)) + dresidual, and the gradient of the weight
// is the sum over rows of dy * h. `dresidual`: as x, or undefined. The sum over rows has a fixed order. `with_y`:
// recomputes the forward's output in the same pass. `maximum`: as in the forward, of dx.
RmsNormGradients rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                   const at::Tensor& rstd, const at::Tensor& dresidual, bool with_y = false,
                                   const at::Tensor& maximum = {});

// The same with ATen operators, on any device: the reference for tests of the kernels.
namespace reference {
RmsNormOutput rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps);
RmsNormGradients rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                   const at::Tensor& rstd, const at::Tensor& dresidual, bool with_y = false);
}  // namespace reference

}  // namespace mpzero::model
