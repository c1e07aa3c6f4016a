#pragma once

#include <ATen/ATen.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "parallel/optimizer/adamw.hpp"

namespace mpzero::parallel {

// AdamW as in its paper (Loshchilov & Hutter 2019, algorithm 2), in fp64.
struct AdamWOracle {
  explicit AdamWOracle(const at::Tensor& initial)
      : weights(initial.to(at::kDouble).clone()), m(at::zeros_like(weights)), v(at::zeros_like(weights)) {}

  void update(const at::Tensor& gradient, const AdamWOptions& options, double lr) {
    ++t;
    const at::Tensor g = gradient.to(at::kDouble);
    m = options.beta1 * m + (1 - options.beta1) * g;
    v = options.beta2 * v + (1 - options.beta2) * g * g;
    const double bias1 = options.bias_correction ? 1 - std::pow(options.beta1, t) : 1;
    const double bias2 = options.bias_correction ? 1 - std::pow(options.beta2, t) : 1;
    weights = weights - lr * options.weight_decay * weights - lr * (m / bias1) / (at::sqrt(v / bias2) + options.eps);
  }

  at::Tensor weights, m, v;
  int t = 0;
};

}  // namespace mpzero::parallel
