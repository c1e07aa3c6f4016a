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

// The scalars of one update, in fp32 as the kernels use them.
struct AdamWUpdate {
  float beta1, beta2, eps;
  float gradient_scale;      // 1 / clipping coefficient
  float decay;               // 1 - lr * weight_decay
  float step_size;           // lr / (1 - beta1^t)
  float inverse_sqrt_bias2;  // 1 / sqrt(1 - beta2^t)
  // On the GPU, if set: replaces gradient_scale and is read when the kernel runs. If it is not finite, the states are
  // unchanged and the parameter receives the rounded master weight.
  const float* device_gradient_scale = nullptr;
  uint32_t rounding_seed = 0;  // for bf16 moments: different at each update
};

// `update` counts from 1.
AdamWUpdate adamw_update(const AdamWOptions& options, double lr, int64_t update, double gradient_scale);

// One flat range of the model; all tensors have the same length and device.
struct AdamWTensors {
  at::Tensor gradient;    // fp32 or bf16
  at::Tensor master;      // fp32
  at::Tensor exp_avg;     // fp32 or bf16
  at::Tensor exp_avg_sq;  // same dtype as exp_avg
  at::Tensor parameter;   // fp32 or bf16: receives the rounded master
  int64_t first = 0;      // position of the first element in the full model; determines the rounding of moments in bf16
};

// Decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2), in the arithmetic of DeepSpeed's CPUAdam:
//   g = gradient * gradient_scale; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2
//   w = w (1 - lr wd) - lr / (1-b1^t) * m / (sqrt(v) / sqrt(1-b2^t) + eps)
// in one pass, on the tensors' device. Host and GPU results are equal except for the last bits. Moments in bf16 use
// stochastic rounding: with rounding to nearest, an average that changes by less than half a unit in the last place per
// step would never change. Position and seed determine the rounding, so it depends neither on the layout nor on the
// number of threads.
void adamw(const AdamWTensors& tensors, const AdamWUpdate& update);

// The sum of squares of a flat fp32 or bf16 tensor, accumulated in fp64 in an order that depends on its length only; a
// fp64 scalar on the tensor's device.
at::Tensor sum_of_squares(const at::Tensor& tensor);
// The same, as partial sums: [num_square_partials(device)] fp64 on the tensor's device.
void partial_sums_of_squares(const at::Tensor& tensor, const at::Tensor& partial);
int64_t num_square_partials(at::Device device);

// The factor that scales gradients of this squared norm to the norm `clip`, or 1; as in DeepSpeed, 1 / max(1, (norm +
// 1e-6) / clip); clip 0: 1.
double clipping_scale(double squares, double clip);
// The same on the GPU. totals: [squares, loss] fp64; scale: fp32 scalar. NaN if one of the totals is not finite.
void clipping_scale_out(const at::Tensor& scale, const at::Tensor& totals, double clip);

}  // namespace mpzero::parallel
