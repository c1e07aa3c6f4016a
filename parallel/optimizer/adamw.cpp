#include "parallel/optimizer/adamw.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

#include "parallel/optimizer/adamw_kernels.hpp"
#include "parallel/streams/streams.hpp"

namespace mpzero::parallel {
AdamWUpdate adamw_update(const AdamWOptions& options, double lr, int64_t update, double gradient_scale) {
  const auto t = static_cast<double>(update);
  const double bias1 = options.bias_correction ? 1 - std::pow(options.beta1, t) : 1;
  const double bias2 = options.bias_correction ? 1 - std::pow(options.beta2, t) : 1;
  return {.beta1 = static_cast<float>(options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .eps = static_cast<float>(options.eps),
          .gradient_scale = static_cast<float>(gradient_scale),
          .decay = static_cast<float>(1 - lr * options.weight_decay),
          .step_size = static_cast<float>(lr / bias1),
          .inverse_sqrt_bias2 = static_cast<float>(1 / std::sqrt(bias2))};
}

AdamWSpans spans_of(const AdamWTensors& tensors) {
  return {.gradient = tensors.gradient.const_data_ptr(),
          .gradient_is_bf16 = tensors.gradient.scalar_type() == at::kBFloat16,
          .master = tensors.master.data_ptr<float>(),
          .exp_avg = tensors.exp_avg.data_ptr(),
          .exp_avg_sq = tensors.exp_avg_sq.data_ptr(),
          .moments_are_bf16 = tensors.exp_avg.scalar_type() == at::kBFloat16,
          .parameter = tensors.parameter.data_ptr(),
          .parameter_is_bf16 = tensors.parameter.scalar_type() == at::kBFloat16,
          .count = tensors.master.numel(),
          .first = tensors.first};
}

void adamw(const AdamWTensors& tensors, const AdamWUpdate& update) {
  const int64_t n = tensors.master.numel();
  TORCH_CHECK(tensors.gradient.numel() == n && tensors.exp_avg.numel() == n && tensors.exp_avg_sq.numel() == n &&
                  tensors.parameter.numel() == n,
              "adamw: tensors have different lengths");
  if (tensors.master.device().type() == kSimulatedDevice) return simulated_kernels().adamw(tensors);
  const AdamWSpans spans = spans_of(tensors);
  if (n == 0) return;
  if (tensors.master.is_cuda()) {
    adamw_cuda(spans, update);
  } else {
    adamw_host(spans, update);
  }
}

SimulatedKernels& simulated_kernels() {
  static SimulatedKernels kernels;
  return kernels;
}

bool is_simulated_kernel(const at::Tensor& tensor, size_t bytes) {
  if (!tensor.is_privateuseone()) return false;  // also if undefined
  simulated_kernels().others(static_cast<int64_t>(bytes));
  return true;
}

at::Tensor sum_of_squares(const at::Tensor& tensor) {
  const at::Tensor partial = at::empty({num_square_partials(tensor.device())}, tensor.options().dtype(at::kDouble));
  partial_sums_of_squares(tensor, partial);
  return partial.sum();
}

int64_t num_square_partials(at::Device device) { return device.is_cuda() ? num_square_partials_cuda() : 1; }

double clipping_scale(double squares, double clip) {
  return clip > 0 ? 1.0 / std::max(1.0, (std::sqrt(squares) + kClippingEpsilon) / clip) : 1.0;
}

void clipping_scale_out(const at::Tensor& scale, const at::Tensor& totals, double clip) {
  if (scale.device().type() == kSimulatedDevice) return;  // the simulation ignores the time of scalar operations
  clipping_scale_cuda(scale, totals, clip);
}

}  // namespace mpzero::parallel
