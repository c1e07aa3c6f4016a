#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <algorithm>

namespace mpzero::model {

// Returns the largest difference, relative to the largest magnitude in `expected`; infinity if there is a NaN.
// `smallest_scale`: a lower bound on that magnitude, for results that are small differences of larger terms.
inline double relative_error(const at::Tensor& actual, const at::Tensor& expected, double smallest_scale = 0.0) {
  if (actual.sizes() != expected.sizes()) return 1e300;
  if (expected.numel() == 0) return 0.0;
  const at::Tensor a = actual.to(at::kCPU, at::kDouble), e = expected.to(at::kCPU, at::kDouble);
  const double scale = std::max(e.abs().max().item<double>(), smallest_scale);
  const double difference = a.sub(e).abs().max().item<double>();
  if (!(difference == difference)) return 1e300;
  return scale > 0 ? difference / scale : difference;
}

inline bool bitwise_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.equal(b);
}

}  // namespace mpzero::model
