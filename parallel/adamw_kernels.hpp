#pragma once

#include <cstdint>

#include "parallel/adamw.hpp"

namespace mpzero::parallel {

// AdamWTensors as the kernels see them: raw memory of `count` elements each.
struct AdamWSpans {
  const void* gradient;  // float or bf16
  bool gradient_is_bf16;
  float* master;
  float* exp_avg;
  float* exp_avg_sq;
  void* parameter;  // float or bf16
  bool parameter_is_bf16;
  int64_t count;
};

// Over all threads of the process; AVX-512 or AVX2 where the CPU has them.
void adamw_host(const AdamWSpans& spans, const AdamWUpdate& update);
// On the current stream.
void adamw_cuda(const AdamWSpans& spans, const AdamWUpdate& update);
at::Tensor sum_of_squares_cuda(const at::Tensor& tensor);

}  // namespace mpzero::parallel
