#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>

#include "parallel/adamw_kernels.hpp"

namespace mpzero::parallel {
namespace {

constexpr int kThreads = 256;
constexpr int kElementsPerThread = 4;
// Enough blocks to fill any GPU; a fixed number, so that sums repeat.
constexpr int kSumBlocks = 1024;

__device__ inline float load(const float* p) { return *p; }
__device__ inline float load(const __nv_bfloat16* p) { return __bfloat162float(*p); }
__device__ inline void store(float* p, float value) { *p = value; }
__device__ inline void store(__nv_bfloat16* p, float value) { *p = __float2bfloat16_rn(value); }

template <typename Gradient, typename Parameter>
__global__ void adamw_kernel(const Gradient* __restrict__ gradient, float* __restrict__ master,
                             float* __restrict__ exp_avg, float* __restrict__ exp_avg_sq,
                             Parameter* __restrict__ parameter, int64_t count, AdamWUpdate u) {
  const int64_t block_begin = static_cast<int64_t>(blockIdx.x) * kThreads * kElementsPerThread;
#pragma unroll
  for (int k = 0; k < kElementsPerThread; ++k) {
    const int64_t i = block_begin + k * kThreads + threadIdx.x;
    if (i >= count) return;
    const float g = load(gradient + i) * u.gradient_scale;
    const float m = u.beta1 * exp_avg[i] + (1.0F - u.beta1) * g;
    const float v = u.beta2 * exp_avg_sq[i] + (1.0F - u.beta2) * g * g;
    const float w = master[i] * u.decay - u.step_size * (m / (sqrtf(v) * u.inverse_sqrt_bias2 + u.eps));
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master[i] = w;
    store(parameter + i, w);
  }
}

template <typename Gradient, typename Parameter>
void launch(const AdamWSpans& s, const AdamWUpdate& update) {
  const int64_t per_block = kThreads * kElementsPerThread;
  const auto blocks = static_cast<unsigned>((s.count + per_block - 1) / per_block);
  adamw_kernel<<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
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

template <typename T>
__global__ void square_sums_kernel(const T* __restrict__ values, int64_t count, double* __restrict__ partial) {
  double sum = 0;
  const int64_t stride = static_cast<int64_t>(kSumBlocks) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    const float value = load(values + i);
    sum += static_cast<double>(value) * value;
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
  if (tensor.scalar_type() == at::kBFloat16) {
    square_sums_kernel<<<kSumBlocks, kThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(tensor.const_data_ptr()),
                                                            tensor.numel(), partial.data_ptr<double>());
  } else {
    square_sums_kernel<<<kSumBlocks, kThreads, 0, stream>>>(tensor.const_data_ptr<float>(), tensor.numel(),
                                                            partial.data_ptr<double>());
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  add_up_kernel<<<1, kThreads, 0, stream>>>(partial.data_ptr<double>(), total.data_ptr<double>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return total;
}

}  // namespace mpzero::parallel
