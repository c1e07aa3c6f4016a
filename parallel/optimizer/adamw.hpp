#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mpzero::parallel {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool bias_correction = true;
};

// Scalars of one update, in fp32 like the kernels' arithmetic.
struct AdamWUpdate {
  float beta1, beta2, eps;
  float gradient_scale;      // 1 / clipping coefficient
  float decay;               // 1 - lr * weight_decay
  float step_size;           // lr / (1 - beta1^t)
  float inverse_sqrt_bias2;  // 1 / sqrt(1 - beta2^t)
  // GPU only. If set, this device value replaces gradient_scale and is read when the kernel runs. If the value is not
  // finite, the states do not change and the parameter receives the rounded master weight.
  const float* device_gradient_scale = nullptr;
  uint32_t rounding_seed = 0;  // seed of the stochastic rounding of bf16 moments; differs between updates
};

// Returns the scalars of update `update`, which counts from 1.
AdamWUpdate adamw_update(const AdamWOptions& options, double lr, int64_t update, double gradient_scale);

// Tensors of a flat range of the model's parameters, all of the same length and on the same device.
struct AdamWTensors {
  at::Tensor gradient;    // fp32 or bf16
  at::Tensor master;      // fp32
  at::Tensor exp_avg;     // fp32 or bf16
  at::Tensor exp_avg_sq;  // same dtype as exp_avg
  at::Tensor parameter;   // fp32 or bf16; receives the rounded master weights
  int64_t first = 0;      // position of the first element in the full model; determines stochastic rounding
};

// Decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2), in the arithmetic of DeepSpeed's CPUAdam:
//   g = gradient * gradient_scale; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2
//   w = w (1 - lr wd) - lr / (1-b1^t) * m / (sqrt(v) / sqrt(1-b2^t) + eps)
// adamw() runs in one pass on the tensors' device. Host and GPU results are equal except for the last bits. Moments in
// bf16 use stochastic rounding: with rounding to nearest, a moment would never change if each step changed it by less
// than half a unit in the last place. The rounding depends on the element's position and the seed, not on the layout or
// the number of threads.
void adamw(const AdamWTensors& tensors, const AdamWUpdate& update);

// Returns the sum of squares of a flat fp32 or bf16 tensor as an fp64 scalar on the tensor's device. The squares are
// accumulated in fp64, in an order that depends only on the length.
at::Tensor sum_of_squares(const at::Tensor& tensor);
// Writes partial sums of squares to `partial`, fp64 [num_square_partials(device)] on the tensor's device.
void partial_sums_of_squares(const at::Tensor& tensor, const at::Tensor& partial);
int64_t num_square_partials(at::Device device);

// Returns the clipping factor for gradients with this squared norm, 1 / max(1, (norm + 1e-6) / clip) as in DeepSpeed.
// Returns 1 if `clip` is 0.
double clipping_scale(double squares, double clip);
// Computes clipping_scale() on the GPU. `totals` is [squares, loss] in fp64, and `scale` is an fp32 scalar, which
// becomes NaN if a total is not finite.
void clipping_scale_out(const at::Tensor& scale, const at::Tensor& totals, double clip);

}  // namespace mpzero::parallel
