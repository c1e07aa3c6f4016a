#include <ATen/Parallel.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "parallel/optimizer/adamw_avx512.hpp"
#include "parallel/optimizer/adamw_kernels.hpp"
#include "parallel/optimizer/bf16_bits.hpp"
#include "parallel/optimizer/random_bits.hpp"
#include "parallel/streams/streams.hpp"

// The compiler generates a version for each instruction set, and the dynamic loader selects one. All versions produce
// the same bits, because only the conversion to bf16 rounds, and squares of fp32 numbers are exact in fp64.
#define MPZERO_FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))

namespace mpzero::parallel {
namespace {

// Elements per task of a sum: large enough to hide the dispatch cost, small enough for load balance.
constexpr int64_t kGrain = int64_t{1} << 16;

// Old and new states, which may alias.
struct States {
  const float* master;
  const void* exp_avg;
  const void* exp_avg_sq;
  float* next_master;
  void* next_exp_avg;
  void* next_exp_avg_sq;
  int64_t first;  // position of the first element in the full model
};

// Fuses exactly the same products as adamw_avx512 (-ffp-contract=off), so that each element has the same bits on every
// CPU. Without FMA, the C library computes the fused products, which is slow.
template <typename Gradient, typename Moment, typename Parameter>
__attribute__((always_inline)) inline void adamw_range(const Gradient* gradient, const States& states,
                                                       Parameter* parameter, int64_t count, const AdamWUpdate& update) {
  const AdamWUpdate u = update;
  const States s = states;
  const auto* const exp_avg = static_cast<const Moment*>(s.exp_avg);
  const auto* const exp_avg_sq = static_cast<const Moment*>(s.exp_avg_sq);
  auto* const next_exp_avg = static_cast<Moment*>(s.next_exp_avg);
  auto* const next_exp_avg_sq = static_cast<Moment*>(s.next_exp_avg_sq);
  const auto first = static_cast<uint32_t>(s.first);
  const uint32_t salt = random_salt(s.first, u.rounding_seed);
  const float one_minus_beta1 = 1.0F - u.beta1;
  const float one_minus_beta2 = 1.0F - u.beta2;
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float g = to_float(gradient[i]) * u.gradient_scale;
    const float m = __builtin_fmaf(u.beta1, to_float(exp_avg[i]), one_minus_beta1 * g);
    const float v = __builtin_fmaf(u.beta2, to_float(exp_avg_sq[i]), one_minus_beta2 * g * g);
    const float denominator = __builtin_fmaf(std::sqrt(v), u.inverse_sqrt_bias2, u.eps);
    const float w = __builtin_fmaf(-u.step_size, m / denominator, s.master[i] * u.decay);
    const uint32_t random = random_bits(first + static_cast<uint32_t>(i), salt);
    next_exp_avg[i] = round_randomly_to<Moment>(m, random & 0xFFFFU);
    next_exp_avg_sq[i] = round_randomly_to<Moment>(v, random >> 16);
    s.next_master[i] = w;
    parameter[i] = round_to<Parameter>(w);
  }
}

using Kernel = void (*)(const void* gradient, const States& states, void* parameter, int64_t count,
                        const AdamWUpdate& update);

template <typename Gradient, typename Moment, typename Parameter>
__attribute__((target("avx2,fma"))) void adamw_avx2(const void* gradient, const States& states, void* parameter,
                                                    int64_t count, const AdamWUpdate& update) {
  adamw_range<Gradient, Moment, Parameter>(static_cast<const Gradient*>(gradient), states,
                                           static_cast<Parameter*>(parameter), count, update);
}

template <typename Gradient, typename Moment, typename Parameter>
void adamw_portable(const void* gradient, const States& states, void* parameter, int64_t count,
                    const AdamWUpdate& update) {
  adamw_range<Gradient, Moment, Parameter>(static_cast<const Gradient*>(gradient), states,
                                           static_cast<Parameter*>(parameter), count, update);
}

template <typename Gradient, typename Moment, typename Parameter>
Kernel choose_kernel(HostKernel instructions) {
  return instructions == HostKernel::kPortable ? adamw_portable<Gradient, Moment, Parameter>
                                               : adamw_avx2<Gradient, Moment, Parameter>;
}

template <typename Moment>
Kernel choose_kernel(const AdamWSpans& s, HostKernel instructions) {
  if (s.gradient_is_bf16) {
    return s.parameter_is_bf16 ? choose_kernel<Bf16Bits, Moment, Bf16Bits>(instructions)
                               : choose_kernel<Bf16Bits, Moment, float>(instructions);
  }
  return s.parameter_is_bf16 ? choose_kernel<float, Moment, Bf16Bits>(instructions)
                             : choose_kernel<float, Moment, float>(instructions);
}

template <typename T>
T* element_of(T* memory, bool is_bf16, int64_t index) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return static_cast<Byte*>(memory) + index * (is_bf16 ? 2 : 4);
}

MPZERO_FOR_EACH_CPU void round_to_bf16(const float* master, Bf16Bits* parameter, int64_t count) {
  for (int64_t i = 0; i < count; ++i) parameter[i] = round_to<Bf16Bits>(master[i]);
}

template <typename T>
__attribute__((always_inline)) inline double sum_of_squares_range(const T* values, int64_t count) {
  // Uses independent partial sums, which the compiler vectorizes and which are added in a fixed order.
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
  // One partial sum per block of fixed size, so that the result does not depend on the number of threads.
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
  if (tensor.device().type() == kSimulatedDevice) {
    simulated_kernels().sum_of_squares(tensor);
  } else if (tensor.is_cuda()) {
    partial_sums_of_squares_cuda(tensor, partial);
  } else {
    *partial.data_ptr<double>() = sum_of_squares_host(tensor);
  }
}

bool cpu_runs(HostKernel kernel) {
  switch (kernel) {
    case HostKernel::kAvx512:
      // This kernel does not need the FMA extension, but AVX2 processes the remaining elements.
      return cpu_has_avx512() && cpu_runs(HostKernel::kAvx2);
    case HostKernel::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case HostKernel::kPortable:
      return true;
  }
  return false;
}

HostKernel fastest_host_kernel() {
  static const HostKernel fastest = cpu_runs(HostKernel::kAvx512) ? HostKernel::kAvx512
                                    : cpu_runs(HostKernel::kAvx2) ? HostKernel::kAvx2
                                                                  : HostKernel::kPortable;
  return fastest;
}

const char* name(HostKernel kernel) {
  switch (kernel) {
    case HostKernel::kAvx512:
      return "AVX-512";
    case HostKernel::kAvx2:
      return "AVX2";
    case HostKernel::kPortable:
      return "no vector instructions";
  }
  return "";
}

void adamw_host_range(const AdamWSpans& s, const AdamWUpdate& update, int64_t begin, int64_t end,
                      HostKernel instructions) {
  if (s.moments_are_bf16) {
    // The kernels add positions in 32 bits.
    const int64_t boundary = (((s.first + begin) >> 32) + 1) * (int64_t{1} << 32) - s.first;
    if (boundary < end) {
      adamw_host_range(s, update, begin, boundary, instructions);
      begin = boundary;
    }
  }
  if (instructions == HostKernel::kAvx512) begin = adamw_avx512(s, update, begin, end);
  if (begin == end) return;
  const Kernel kernel =
      s.moments_are_bf16 ? choose_kernel<Bf16Bits>(s, instructions) : choose_kernel<float>(s, instructions);
  const bool in_place = s.next_master == nullptr, bf16 = s.moments_are_bf16;
  const States states{.master = s.master + begin,
                      .exp_avg = element_of(s.exp_avg, bf16, begin),
                      .exp_avg_sq = element_of(s.exp_avg_sq, bf16, begin),
                      .next_master = (in_place ? s.master : s.next_master) + begin,
                      .next_exp_avg = element_of(in_place ? s.exp_avg : s.next_exp_avg, bf16, begin),
                      .next_exp_avg_sq = element_of(in_place ? s.exp_avg_sq : s.next_exp_avg_sq, bf16, begin),
                      .first = s.first + begin};
  kernel(element_of(s.gradient, s.gradient_is_bf16, begin), states, element_of(s.parameter, s.parameter_is_bf16, begin),
         end - begin, update);
}

void adamw_host(const AdamWSpans& spans, const AdamWUpdate& update) {
  const int64_t blocks = (spans.count + kHostBlock - 1) / kHostBlock;
  at::parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
    adamw_host_range(spans, update, first * kHostBlock, std::min(last * kHostBlock, spans.count));
  });
}

void round_host_range(const float* master, void* parameter, bool parameter_is_bf16, int64_t begin, int64_t end) {
  if (parameter_is_bf16) {
    round_to_bf16(master + begin, static_cast<Bf16Bits*>(parameter) + begin, end - begin);
  } else {
    std::copy(master + begin, master + end, static_cast<float*>(parameter) + begin);
  }
}

}  // namespace mpzero::parallel
