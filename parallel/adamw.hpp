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
};

// `update` counts from 1.
AdamWUpdate adamw_update(const AdamWOptions& options, double lr, int64_t update, double gradient_scale);

// One flat piece of the model, all tensors of one length and on one device.
struct AdamWTensors {
  at::Tensor gradient;    // fp32 or bf16
  at::Tensor master;      // fp32
  at::Tensor exp_avg;     // fp32
  at::Tensor exp_avg_sq;  // fp32
  at::Tensor parameter;   // fp32 or bf16: receives the rounded master
};

// Decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2), in the arithmetic of DeepSpeed's CPUAdam:
//   g = gradient * gradient_scale; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2
//   w = w (1 - lr wd) - lr / (1-b1^t) * m / (sqrt(v) / sqrt(1-b2^t) + eps)
// in one pass, on the device that holds the tensors. The host and the GPU give the same values up to the last bits.
void adamw(const AdamWTensors& tensors, const AdamWUpdate& update);

// The sum of squares of a flat fp32 or bf16 tensor, added up in fp64 in an order that only its length decides; a fp64
// scalar on the tensor's device.
at::Tensor sum_of_squares(const at::Tensor& tensor);

}  // namespace mpzero::parallel
