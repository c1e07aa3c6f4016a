#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model {

struct RmsNormOutput {
  at::Tensor y;     // same shape as x
  at::Tensor rstd;  // [...]: 1 / sqrt(mean(x^2) + eps) of each row, fp32 (fp64 for fp64 inputs)
};

struct RmsNormGradients {
  at::Tensor dx;            // same shape as x
  at::Tensor dweight_rows;  // [R, H], fp32 (fp64 for fp64 inputs): partial sums of the weight's gradient
  at::Tensor y;             // output of rms_norm_forward (bitwise identical); undefined unless requested
};

// Computes y = weight * (x * rstd) in fp32, for x [..., H] and weight [H] (Zhang and Sennrich, 2019, arXiv:1910.07467).
// As in transformers, x * rstd is rounded to x's dtype before it is multiplied by the weight. `maximum`: if defined, an
// fp32 scalar that is updated to max(maximum, max |y|); NaN propagates.
RmsNormOutput rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps,
                               const at::Tensor& maximum = {});

// Computes dx = rstd * (g - h * mean(g * h)) + dresidual, with h = x * rstd and g = dy * weight. The gradient of the
// weight is the sum of dy * h over rows, in a fixed order. `dresidual`: same shape as x, or undefined. `with_y`:
// recomputes the forward output in the same pass. `maximum`: see rms_norm_forward; updated with max |dx|.
RmsNormGradients rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                   const at::Tensor& rstd, const at::Tensor& dresidual, bool with_y = false,
                                   const at::Tensor& maximum = {});

// Reference implementations with ATen operators, for any device.
namespace reference {
RmsNormOutput rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps);
RmsNormGradients rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                   const at::Tensor& rstd, const at::Tensor& dresidual, bool with_y = false);
}  // namespace reference

}  // namespace mpzero::model
