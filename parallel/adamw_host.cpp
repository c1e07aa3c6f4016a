#include <ATen/Parallel.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "parallel/adamw_avx512.hpp"
#include "parallel/adamw_kernels.hpp"
#include "parallel/bf16_bits.hpp"

// The compiler makes a version for each instruction set; the loader picks one. (For AVX-512 the compiler prefers half
// of the register: what is worth more is in adamw_avx512.cpp.)
#define MPZERO_FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))

namespace mpzero::parallel {
namespace {

// Elements a task: large enough to hide the cost of handing it out, small enough to balance.
constexpr int64_t kGrain = int64_t{1} << 16;

template <typename Gradient, typename Parameter>
__attribute__((always_inline)) inline void adamw_range(const Gradient* __restrict gradient, float* __restrict master,
                                                       float* __restrict exp_avg, float* __restrict exp_avg_sq,
                                                       Parameter* __restrict parameter, int64_t count,
                                                       const AdamWUpdate& update) {
  const AdamWUpdate u = update;
  const float one_minus_beta1 = 1.0F - u.beta1;
  const float one_minus_beta2 = 1.0F - u.beta2;
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float g = to_float(gradient[i]) * u.gradient_scale;
    const float m = u.beta1 * exp_avg[i] + one_minus_beta1 * g;
    const float v = u.beta2 * exp_avg_sq[i] + one_minus_beta2 * g * g;
    const float w = master[i] * u.decay - u.step_size * (m / (std::sqrt(v) * u.inverse_sqrt_bias2 + u.eps));
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master[i] = w;
    parameter[i] = round_to<Parameter>(w);
  }
}

// target_clones does not reach into templates, so each pair of types is spelled out. Types take no parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define MPZERO_DEFINE_ADAMW(name, Gradient, Parameter)                                                  \
  MPZERO_FOR_EACH_CPU void name(const void* gradient, float* master, float* exp_avg, float* exp_avg_sq, \
                                void* parameter, int64_t count, const AdamWUpdate& update) {            \
    adamw_range(static_cast<const Gradient*>(gradient), master, exp_avg, exp_avg_sq,                    \
                static_cast<Parameter*>(parameter), count, update);                                     \
  }
MPZERO_DEFINE_ADAMW(adamw_f32_f32, float, float)
MPZERO_DEFINE_ADAMW(adamw_f32_bf16, float, Bf16Bits)
MPZERO_DEFINE_ADAMW(adamw_bf16_f32, Bf16Bits, float)
MPZERO_DEFINE_ADAMW(adamw_bf16_bf16, Bf16Bits, Bf16Bits)
#undef MPZERO_DEFINE_ADAMW
// NOLINTEND(bugprone-macro-parentheses)

template <typename T>
__attribute__((always_inline)) inline double sum_of_squares_range(const T* values, int64_t count) {
  // Independent partial sums that vectorise, added in a fixed order.
  constexpr int64_t kLanes = 16;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = to_float(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  double sum = 0;
  for (; i < count; ++i) sum += static_cast<double>(to_float(values[i])) * to_float(values[i]);
  for (const double lane : lanes) sum += lane;
  return sum;
}

MPZERO_FOR_EACH_CPU double sum_of_squares_f32(const void* values, int64_t count) {
  return sum_of_squares_range(static_cast<const float*>(values), count);
}
MPZERO_FOR_EACH_CPU double sum_of_squares_bf16(const void* values, int64_t count) {
  return sum_of_squares_range(static_cast<const Bf16Bits*>(values), count);
}

double sum_of_squares_host(const at::Tensor& tensor) {
  const int64_t count = tensor.numel();
  const bool bf16 = tensor.scalar_type() == at::kBFloat16;
  const char* bytes = static_cast<const char*>(tensor.const_data_ptr());
  // One partial sum a block of fixed size: the result does not depend on the number of threads.
  std::vector<double> partial(static_cast<size_t>((count + kGrain - 1) / kGrain));
  at::parallel_for(0, static_cast<int64_t>(partial.size()), 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * kGrain;
      const int64_t length = std::min(kGrain, count - begin);
      const char* values = bytes + begin * tensor.element_size();
      partial[static_cast<size_t>(block)] =
          bf16 ? sum_of_squares_bf16(values, length) : sum_of_squares_f32(values, length);
    }
  });
  double sum = 0;
  for (const double value : partial) sum += value;
  return sum;
}

}  // namespace

void partial_sums_of_squares(const at::Tensor& tensor, const at::Tensor& partial) {
  if (tensor.is_cuda()) {
    partial_sums_of_squares_cuda(tensor, partial);
  } else {
    *partial.data_ptr<double>() = sum_of_squares_host(tensor);
  }
}

void adamw_host(const AdamWSpans& s, const AdamWUpdate& update) {
  const auto kernel = s.gradient_is_bf16 ? (s.parameter_is_bf16 ? adamw_bf16_bf16 : adamw_bf16_f32)
                                         : (s.parameter_is_bf16 ? adamw_f32_bf16 : adamw_f32_f32);
  const int64_t gradient_bytes = s.gradient_is_bf16 ? 2 : 4;
  const int64_t parameter_bytes = s.parameter_is_bf16 ? 2 : 4;
  const bool avx512 = cpu_has_avx512();
  auto* const exp_avg = static_cast<float*>(s.exp_avg);
  auto* const exp_avg_sq = static_cast<float*>(s.exp_avg_sq);
  // Whole blocks of fixed size, so that every element meets the same instructions whatever the number of threads.
  const int64_t blocks = (s.count + kGrain - 1) / kGrain;
  at::parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
    int64_t begin = first * kGrain;
    const int64_t end = std::min(last * kGrain, s.count);
    if (avx512) begin = adamw_avx512(s, update, begin, end);
    kernel(static_cast<const char*>(s.gradient) + begin * gradient_bytes, s.master + begin, exp_avg + begin,
           exp_avg_sq + begin, static_cast<char*>(s.parameter) + begin * parameter_bytes, end - begin, update);
  });
}

}  // namespace mpzero::parallel
