#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "parallel/optimizer/adamw_kernels.hpp"
#include "parallel/optimizer/random_bits.hpp"
#include "parallel/streams/packs.cuh"

namespace mpzero::parallel {
namespace {

constexpr int kThreads = 256;
// Enough blocks to fill any GPU. The number is fixed, so that sums are reproducible.
constexpr int kSumBlocks = 1024;

bool aligned(std::initializer_list<const void*> addresses) {
  return std::all_of(addresses.begin(), addresses.end(),
                     [](const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; });
}

__device__ inline void round_moment(float* p, float value, uint32_t) { *p = value; }
// Rounds stochastically: away from zero with probability (dropped 16 bits) / 2^16. Requires `random` < 2^16.
__device__ inline void round_moment(__nv_bfloat16* p, float value, uint32_t random) {
  const uint32_t bits = __float_as_uint(value);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  *p = __float2bfloat16_rn(finite ? __uint_as_float((bits + random) & 0xffff0000u) : value);
}

// Writes the parameter even if the master weight is unchanged, because the parameter may be an unwritten buffer.
template <typename Parameter>
__device__ void round_range(const float* __restrict__ master, Parameter* __restrict__ parameter, int64_t begin,
                            int64_t end) {
  for (int64_t i = begin; i < end; ++i) round_to(&parameter[i], master[i]);
}

// Fuses exactly the same products as adamw_host.cpp, so that results are bitwise equal on GPU and host. Intrinsics keep
// nvcc from fusing other products.
template <typename Gradient, typename Moment, typename Parameter>
__device__ void update_element(Gradient gradient, float& master, Moment& exp_avg, Moment& exp_avg_sq,
                               Parameter& parameter, const AdamWUpdate& u, int64_t element) {
  const float g = __fmul_rn(widen(gradient), u.gradient_scale);
  const float m = __fmaf_rn(u.beta1, widen(exp_avg), __fmul_rn(1.0F - u.beta1, g));
  const float v = __fmaf_rn(u.beta2, widen(exp_avg_sq), __fmul_rn(__fmul_rn(1.0F - u.beta2, g), g));
  const float denominator = __fmaf_rn(sqrtf(v), u.inverse_sqrt_bias2, u.eps);
  const float w = __fmaf_rn(-u.step_size, m / denominator, __fmul_rn(master, u.decay));
  const uint32_t random = std::is_same_v<Moment, float>
                              ? 0
                              : random_bits(static_cast<uint32_t>(element), random_salt(element, u.rounding_seed));
  round_moment(&exp_avg, m, random & 0xffffu);
  round_moment(&exp_avg_sq, v, random >> 16);
  master = w;
  round_to(&parameter, w);
}

// A thread processes kPack adjacent elements: as packs if all addresses are aligned, otherwise (and at the end) one by
// one.
template <bool kVectors, typename Gradient, typename Moment, typename Parameter>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const Gradient* __restrict__ gradient, float* __restrict__ master, Moment* __restrict__ exp_avg,
                 Moment* __restrict__ exp_avg_sq, Parameter* __restrict__ parameter, int64_t count, int64_t first,
                 AdamWUpdate u) {
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  if (u.device_gradient_scale != nullptr) {
    u.gradient_scale = *u.device_gradient_scale;
    if (!isfinite(u.gradient_scale)) {
      round_range(master, parameter, begin, min(begin + kPack, count));
      return;
    }
  }
  if (kVectors && begin + kPack <= count) {
    const auto g = *reinterpret_cast<const Pack<Gradient>*>(gradient + begin);
    auto w = *reinterpret_cast<const Pack<float>*>(master + begin);
    auto m = *reinterpret_cast<const Pack<Moment>*>(exp_avg + begin);
    auto v = *reinterpret_cast<const Pack<Moment>*>(exp_avg_sq + begin);
    Pack<Parameter> p;
#pragma unroll
    for (int j = 0; j < kPack; ++j) update_element(g.v[j], w.v[j], m.v[j], v.v[j], p.v[j], u, first + begin + j);
    *reinterpret_cast<Pack<float>*>(master + begin) = w;
    *reinterpret_cast<Pack<Moment>*>(exp_avg + begin) = m;
    *reinterpret_cast<Pack<Moment>*>(exp_avg_sq + begin) = v;
    *reinterpret_cast<Pack<Parameter>*>(parameter + begin) = p;
    return;
  }
  for (int64_t i = begin; i < min(begin + kPack, count); ++i) {
    update_element(gradient[i], master[i], exp_avg[i], exp_avg_sq[i], parameter[i], u, first + i);
  }
}

template <typename Gradient, typename Moment, typename Parameter>
void launch(const AdamWSpans& s, const AdamWUpdate& update) {
  if (s.count == 0) return;
  const int64_t per_block = kThreads * kPack;
  const auto blocks = static_cast<unsigned>((s.count + per_block - 1) / per_block);
  const auto kernel = aligned({s.gradient, s.master, s.exp_avg, s.exp_avg_sq, s.parameter})
                          ? adamw_kernel<true, Gradient, Moment, Parameter>
                          : adamw_kernel<false, Gradient, Moment, Parameter>;
  kernel<<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      static_cast<const Gradient*>(s.gradient), s.master, static_cast<Moment*>(s.exp_avg),
      static_cast<Moment*>(s.exp_avg_sq), static_cast<Parameter*>(s.parameter), s.count, s.first, update);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename Gradient, typename Parameter>
void launch_for_moments(const AdamWSpans& s, const AdamWUpdate& update) {
  s.moments_are_bf16 ? launch<Gradient, __nv_bfloat16, Parameter>(s, update)
                     : launch<Gradient, float, Parameter>(s, update);
}

// Adds one value per thread over the block, in a fixed order. Thread 0 gets the result.
__device__ double block_sum(double value) {
  __shared__ double shared[kThreads];
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  return shared[0];
}

// Returns the sum of squares of a pack, in an order that does not depend on how the pack was read.
template <typename T>
__device__ double pack_squares(const Pack<T>& pack) {
  double sum = 0;
#pragma unroll
  for (int j = 0; j < kPack; ++j) {
    const double value = widen(pack.v[j]);
    sum += value * value;
  }
  return sum;
}

template <bool kVectors, typename T>
__global__ void __launch_bounds__(kThreads)
    square_sums_kernel(const T* __restrict__ values, int64_t count, double* __restrict__ partial) {
  double sum = 0;
  const int64_t stride = static_cast<int64_t>(kSumBlocks) * kThreads * kPack;
  int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
#pragma unroll 4
  for (; i + kPack <= count; i += stride) {
    if constexpr (kVectors) {
      sum += pack_squares(*reinterpret_cast<const Pack<T>*>(values + i));
    } else {
      Pack<T> pack;
      for (int j = 0; j < kPack; ++j) pack.v[j] = values[i + j];
      sum += pack_squares(pack);
    }
  }
  if (i < count) {
    Pack<T> rest{};
    for (int j = 0; i + j < count; ++j) rest.v[j] = values[i + j];
    sum += pack_squares(rest);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void clipping_scale_kernel(const double* __restrict__ totals, double clip, double epsilon,
                                      float* __restrict__ scale) {
  if (!isfinite(totals[0]) || !isfinite(totals[1])) {
    *scale = __int_as_float(0x7fc00000);  // NaN
  } else {
    *scale = clip > 0 ? static_cast<float>(1.0 / fmax(1.0, (sqrt(totals[0]) + epsilon) / clip)) : 1.0F;
  }
}

}  // namespace

void adamw_cuda(const AdamWSpans& s, const AdamWUpdate& update) {
  if (s.gradient_is_bf16) {
    s.parameter_is_bf16 ? launch_for_moments<__nv_bfloat16, __nv_bfloat16>(s, update)
                        : launch_for_moments<__nv_bfloat16, float>(s, update);
  } else {
    s.parameter_is_bf16 ? launch_for_moments<float, __nv_bfloat16>(s, update)
                        : launch_for_moments<float, float>(s, update);
  }
}

int64_t num_square_partials_cuda() { return kSumBlocks; }

void partial_sums_of_squares_cuda(const at::Tensor& tensor, const at::Tensor& partial) {
  const auto stream = c10::cuda::getCurrentCUDAStream();
  const auto launch_sums = [&](const auto* values) {
    using T = std::remove_cvref_t<decltype(*values)>;
    const auto kernel = aligned({values}) ? square_sums_kernel<true, T> : square_sums_kernel<false, T>;
    kernel<<<kSumBlocks, kThreads, 0, stream>>>(values, tensor.numel(), partial.data_ptr<double>());
  };
  if (tensor.scalar_type() == at::kBFloat16) {
    launch_sums(static_cast<const __nv_bfloat16*>(tensor.const_data_ptr()));
  } else {
    launch_sums(tensor.const_data_ptr<float>());
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void clipping_scale_cuda(const at::Tensor& scale, const at::Tensor& totals, double clip) {
  clipping_scale_kernel<<<1, 1, 0, c10::cuda::getCurrentCUDAStream()>>>(totals.const_data_ptr<double>(), clip,
                                                                        kClippingEpsilon, scale.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace mpzero::parallel
