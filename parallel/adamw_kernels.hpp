#pragma once

#include <cstdint>

#include "parallel/adamw.hpp"

namespace mpzero::parallel {

// DeepSpeed divides gradients by (norm + this) / clip where that exceeds 1.
constexpr double kClippingEpsilon = 1e-6;

// AdamWTensors as the kernels see them: raw memory of `count` elements each.
struct AdamWSpans {
  const void* gradient;  // float or bf16
  bool gradient_is_bf16;
  float* master;
  void* exp_avg;  // float or bf16
  void* exp_avg_sq;
  bool moments_are_bf16;
  void* parameter;  // float or bf16
  bool parameter_is_bf16;
  int64_t count;
  int64_t first;  // see AdamWTensors
};

// Over all threads of the process; AVX-512 or AVX2 where the CPU has them. Moments in fp32.
void adamw_host(const AdamWSpans& spans, const AdamWUpdate& update);
// On the current stream.
void adamw_cuda(const AdamWSpans& spans, const AdamWUpdate& update);
void partial_sums_of_squares_cuda(const at::Tensor& tensor, const at::Tensor& partial);
int64_t num_square_partials_cuda();
void clipping_scale_cuda(const at::Tensor& scale, const at::Tensor& totals, double clip);

}  // namespace mpzero::parallel
