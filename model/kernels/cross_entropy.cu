#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {
namespace {

constexpr int kMaxThreads = 1024;  // a block
constexpr int kUnroll = 4;         // packs that a thread has in flight

// A running maximum and the sum of exp(x - maximum) (Milakov and Gimelshein, 2018, arXiv:1805.02867).
struct SoftmaxSum {
  float maximum = -INFINITY;
  float sum = 0.0f;

  template <typename T, int kPack>
  __device__ void add(const Pack<T, kPack>& pack) {
    float largest = static_cast<float>(pack.v[0]);
    for (int j = 1; j < kPack; ++j) largest = fmaxf(largest, static_cast<float>(pack.v[j]));
    if (largest > maximum) {
      sum *= __expf(maximum - largest);
      maximum = largest;
    }
    float added = 0.0f;
    for (int j = 0; j < kPack; ++j) added += __expf(static_cast<float>(pack.v[j]) - maximum);
    sum += added;
  }
};

__device__ SoftmaxSum merge(const SoftmaxSum& a, const SoftmaxSum& b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  if (maximum == -INFINITY) return {maximum, a.sum + b.sum};
  return {maximum, a.sum * __expf(a.maximum - maximum) + b.sum * __expf(b.maximum - maximum)};
}

__device__ SoftmaxSum warp_merge(SoftmaxSum x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    x = merge(x, {__shfl_xor_sync(0xffffffffu, x.maximum, offset), __shfl_xor_sync(0xffffffffu, x.sum, offset)});
  }
  return x;
}

// One block a row. A target outside [0, columns) makes the loss NaN. Each thread keeps the first `cached` of its packs
// in shared memory, so that the second pass need not read them again.
template <typename T, int kPack, bool kBackward>
__global__ void __launch_bounds__(kMaxThreads)
    kernel(T* logits, const int64_t* targets, float* losses, int64_t columns, float gradient_scale, int cached) {
  extern __shared__ char cache_bytes[];
  __shared__ float maxima[kWarp], sums[kWarp];
  auto* cache = reinterpret_cast<Pack<T, kPack>*>(cache_bytes) + threadIdx.x;
  const int threads = static_cast<int>(blockDim.x), lane = threadIdx.x % kWarp;
  const int packs = (static_cast<int>(columns / kPack) - static_cast<int>(threadIdx.x) + threads - 1) / threads;
  T* x = logits + blockIdx.x * columns + threadIdx.x * kPack;  // the thread's first pack
  const int stride = threads * kPack;
  SoftmaxSum total;
  int k = 0;
  for (; k + kUnroll <= packs; k += kUnroll) {
    Pack<T, kPack> loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) loaded[u] = load<T, kPack>(x + (k + u) * stride);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (kBackward && k + u < cached) cache[(k + u) * threads] = loaded[u];
      total.add(loaded[u]);
    }
  }
  for (; k < packs; ++k) {
    const auto pack = load<T, kPack>(x + k * stride);
    if (kBackward && k < cached) cache[k * threads] = pack;
    total.add(pack);
  }
  total = warp_merge(total);
  if (lane == 0) {
    maxima[threadIdx.x / kWarp] = total.maximum;
    sums[threadIdx.x / kWarp] = total.sum;
  }
  __syncthreads();
  total = warp_merge(lane < threads / kWarp ? SoftmaxSum{maxima[lane], sums[lane]} : SoftmaxSum{});
  const float log_sum = total.maximum + logf(total.sum);
  const int64_t target = targets[blockIdx.x];
  const bool in_range = target >= 0 && target < columns;
  T* target_logit = logits + blockIdx.x * columns + (in_range ? target : 0);
  float target_log_p = NAN;
  if (threadIdx.x == 0) {
    if (in_range) target_log_p = static_cast<float>(*target_logit) - log_sum;
    losses[blockIdx.x] = -target_log_p;
  }
  if constexpr (kBackward) {
    __syncthreads();  // the target's logit has been read
#pragma unroll 4
    for (k = 0; k < packs; ++k) {
      auto pack = k < cached ? cache[k * threads] : load<T, kPack>(x + k * stride);
      for (int j = 0; j < kPack; ++j) {
        pack.v[j] = static_cast<T>(gradient_scale * __expf(static_cast<float>(pack.v[j]) - log_sum));
      }
      store<T, kPack>(x + k * stride, pack);
    }
    __syncthreads();  // the target's gradient is written over
    if (threadIdx.x == 0 && in_range) {
      *target_logit = static_cast<T>(gradient_scale * (__expf(target_log_p) - 1.0f));
    }
  }
}

// What a block of the current device may use beside what the kernel declares.
int64_t shared_bytes() {
  constexpr int64_t kDeclared = 1024;
  return static_cast<int64_t>(at::cuda::getCurrentDeviceProperties()->sharedMemPerBlockOptin) - kDeclared;
}

template <bool kBackward>
at::Tensor run(at::Tensor logits, const at::Tensor& targets, double gradient_scale) {
  const c10::cuda::CUDAGuard guard(logits.device());
  TORCH_CHECK(logits.is_contiguous() && targets.is_contiguous(), "cross entropy wants contiguous logits and targets");
  const int64_t rows = logits.size(0), columns = logits.size(1);
  TORCH_CHECK(columns < (int64_t{1} << 30), "cross entropy takes rows of fewer than 2^30 logits");
  at::Tensor losses = at::empty({rows}, logits.options().dtype(at::kFloat));
  if (rows == 0) return losses;
  with_type(logits.scalar_type(), [&](auto type) {
    using T = decltype(type);
    T* data = logits.mutable_data_ptr<T>();
    with_pack<T>(columns, {data}, [&](T, auto pack) {
      const int threads = block_threads(columns / pack(), kMaxThreads);
      const int64_t cache_row = static_cast<int64_t>(threads * sizeof(Pack<T, pack()>));
      const int64_t packs_a_thread = (columns / pack() + threads - 1) / threads;
      const auto cached = kBackward ? static_cast<int>(std::min(packs_a_thread, shared_bytes() / cache_row)) : 0;
      const auto row_kernel = kernel<T, pack(), kBackward>;
      const int bytes = cached * static_cast<int>(cache_row);
      C10_CUDA_CHECK(cudaFuncSetAttribute(row_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
      row_kernel<<<static_cast<unsigned>(rows), threads, bytes, c10::cuda::getCurrentCUDAStream()>>>(
          data, targets.const_data_ptr<int64_t>(), losses.mutable_data_ptr<float>(), columns,
          static_cast<float>(gradient_scale), cached);
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
  return losses;
}

}  // namespace

at::Tensor cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets) {
  return run<false>(logits, targets, 0.0);
}

at::Tensor cross_entropy_forward_backward_(at::Tensor& logits, const at::Tensor& targets, double gradient_scale) {
  return run<true>(logits, targets, gradient_scale);
}

}  // namespace mpzero::model::cuda
