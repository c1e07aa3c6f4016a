#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "tests/catch.hpp"
#include "tests/parallel/adamw_oracle.hpp"

namespace mpzero::parallel {

// Compares three updates of `numel` elements on `device` with the fp64 oracle.
inline void check_adamw(at::Device device, int64_t numel, at::ScalarType gradient_dtype,
                        at::ScalarType parameter_dtype) {
  const AdamWOptions options{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  const double lr = 1e-2;
  const double gradient_scale = 0.25;
  const auto fp32 = at::TensorOptions().dtype(at::kFloat).device(device);
  AdamWTensors tensors{.gradient = {},
                       .master = at::randn({numel}, fp32),
                       .exp_avg = at::zeros({numel}, fp32),
                       .exp_avg_sq = at::zeros({numel}, fp32),
                       .parameter = at::zeros({numel}, fp32.dtype(parameter_dtype))};
  AdamWOracle oracle(tensors.master);
  for (int update = 1; update <= 3; ++update) {
    tensors.gradient = at::randn({numel}, fp32).to(gradient_dtype);
    oracle.update(tensors.gradient.to(at::kDouble) * gradient_scale, options, lr);
    adamw(tensors, adamw_update(options, lr, update, gradient_scale));
  }
  REQUIRE(at::allclose(tensors.master.to(at::kDouble), oracle.weights, 1e-5, 1e-6));
  REQUIRE(at::allclose(tensors.exp_avg.to(at::kDouble), oracle.m, 1e-5, 1e-7));
  REQUIRE(at::allclose(tensors.exp_avg_sq.to(at::kDouble), oracle.v, 1e-5, 1e-8));
  // The parameter is the master weight rounded to nearest even, as ATen rounds.
  REQUIRE(tensors.parameter.equal(tensors.master.to(parameter_dtype)));
}

inline void check_adamw_everywhere(at::Device device) {
  for (const int64_t numel : {1, 15, 64, 1000, 65536 + 17, 300000}) {
    for (const at::ScalarType gradient : {at::kFloat, at::kBFloat16}) {
      for (const at::ScalarType parameter : {at::kFloat, at::kBFloat16}) {
        check_adamw(device, numel, gradient, parameter);
      }
    }
  }
}

inline void check_sum_of_squares(at::Device device) {
  for (const int64_t numel : {1, 17, 4096, 65536 * 3 + 5}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const at::Tensor values =
          (at::randn({numel}, at::TensorOptions().dtype(at::kFloat).device(device)) * 100).to(dtype);
      const double expected = values.to(at::kDouble).pow(2).sum().item<double>();
      REQUIRE(sum_of_squares(values).item<double>() == Approx(expected).epsilon(1e-12));
      REQUIRE(sum_of_squares(values).equal(sum_of_squares(values)));
    }
  }
}

}  // namespace mpzero::parallel
