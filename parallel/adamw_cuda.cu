#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "parallel/adamw_kernels.hpp"

namespace mpzero::parallel {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = 8;  // elements a thread
// Enough blocks to fill any GPU; a fixed number, so that sums repeat.
constexpr int kSumBlocks = 1024;

// Neighbouring elements that are read or written at once, 16 bytes at a time.
template <typename T>
struct alignas(16) Pack {
  T v[kPack];
};

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline void round_to(float* p, float value) { *p = value; }
__device__ inline void round_to(__nv_bfloat16* p, float value) { *p = __float2bfloat16_rn(value); }

bool aligned(std::initializer_list<const void*> addresses) {
  return std::all_of(addresses.begin(), addresses.end(),
                     [](const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; });
}

template <typename Gradient, typename Parameter>
__device__ void update_element(Gradient gradient, float& master, float& exp_avg, float& exp_avg_sq,
                               Parameter& parameter, const AdamWUpdate& u) {
  const float g = widen(gradient) * u.gradient_scale;
  const float m = u.beta1 * exp_avg + (1.0F - u.beta1) * g;
  const float v = u.beta2 * exp_avg_sq + (1.0F - u.beta2) * g * g;
  const float w = master * u.decay - u.step_size * (m / (sqrtf(v) * u.inverse_sqrt_bias2 + u.eps));
  exp_avg = m;
  exp_avg_sq = v;
  master = w;
  round_to(&parameter, w);
}

// A thread takes kPack neighbours: in packs where all addresses are aligned, one by one elsewhere and at the end.
template <bool kVectors, typename Gradient, typename Parameter>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const Gradient* __restrict__ gradient, float* __restrict__ master, float* __restrict__ exp_avg,
                 float* __restrict__ exp_avg_sq, Parameter* __restrict__ parameter, int64_t count, AdamWUpdate u) {
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  if (kVectors && begin + kPack <= count) {
    const auto g = *reinterpret_cast<const Pack<Gradient>*>(gradient + begin);
    auto w = *reinterpret_cast<const Pack<float>*>(master + begin);
    auto m = *reinterpret_cast<const Pack<float>*>(exp_avg + begin);
    auto v = *reinterpret_cast<const Pack<float>*>(exp_avg_sq + begin);
    Pack<Parameter> p;
#pragma unroll
    for (int j = 0; j < kPack; ++j) update_element(g.v[j], w.v[j], m.v[j], v.v[j], p.v[j], u);
    *reinterpret_cast<Pack<float>*>(master + begin) = w;
    *reinterpret_cast<Pack<float>*>(exp_avg + begin) = m;
    *reinterpret_cast<Pack<float>*>(exp_avg_sq + begin) = v;
    *reinterpret_cast<Pack<Parameter>*>(parameter + begin) = p;
    return;
  }
  for (int64_t i = begin; i < min(begin + kPack, count); ++i) {
    update_element(gradient[i], master[i], exp_avg[i], exp_avg_sq[i], parameter[i], u);
  }
}

template <typename Gradient, typename Parameter>
void launch(const AdamWSpans& s, const AdamWUpdate& update) {
  if (s.count == 0) return;
  const int64_t per_block = kThreads * kPack;
  const auto blocks = static_cast<unsigned>((s.count + per_block - 1) / per_block);
  const auto kernel = aligned({s.gradient, s.master, s.exp_avg, s.exp_avg_sq, s.parameter})
                          ? adamw_kernel<true, Gradient, Parameter>
                          : adamw_kernel<false, Gradient, Parameter>;
  kernel<<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      static_cast<const Gradient*>(s.gradient), s.master, s.exp_avg, s.exp_avg_sq, static_cast<Parameter*>(s.parameter),
      s.count, update);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// Adds up one value a thread over the block, in a fixed order; the result is thread 0's.
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

// The squares of a pack, in an order that does not depend on how it was read.
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

__global__ void add_up_kernel(const double* __restrict__ partial, double* __restrict__ total) {
  double sum = 0;
  for (int i = threadIdx.x; i < kSumBlocks; i += kThreads) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *total = sum;
}

}  // namespace

void adamw_cuda(const AdamWSpans& s, const AdamWUpdate& update) {
  if (s.gradient_is_bf16) {
    s.parameter_is_bf16 ? launch<__nv_bfloat16, __nv_bfloat16>(s, update) : launch<__nv_bfloat16, float>(s, update);
  } else {
    s.parameter_is_bf16 ? launch<float, __nv_bfloat16>(s, update) : launch<float, float>(s, update);
  }
}

at::Tensor sum_of_squares_cuda(const at::Tensor& tensor) {
  const auto options = tensor.options().dtype(at::kDouble);
  const at::Tensor partial = at::empty({kSumBlocks}, options);
  const at::Tensor total = at::empty({}, options);
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
  add_up_kernel<<<1, kThreads, 0, stream>>>(partial.data_ptr<double>(), total.data_ptr<double>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return total;
}

}  // namespace mpzero::parallel
