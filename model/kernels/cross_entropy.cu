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

// One block a row. A target outside [0, columns) makes the loss NaN. The second pass goes through the row backwards:
// what the first one read last is still in the cache.
template <typename T, int kPack, bool kBackward>
__global__ void __launch_bounds__(kMaxThreads)
    kernel(T* logits, const int64_t* targets, float* losses, int64_t columns, float gradient_scale) {
  __shared__ float maxima[kWarp], sums[kWarp];
  T* x = logits + blockIdx.x * columns;
  const int64_t target = targets[blockIdx.x];
  SoftmaxSum total;
  const int stride = static_cast<int>(blockDim.x) * kPack, end = static_cast<int>(columns);
  int i = static_cast<int>(threadIdx.x) * kPack;
  for (; i + (kUnroll - 1) * stride < end; i += kUnroll * stride) {
    Pack<T, kPack> packs[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) packs[u] = load<T, kPack>(x + i + u * stride);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) total.add(packs[u]);
  }
  for (; i < end; i += stride) total.add(load<T, kPack>(x + i));
  total = warp_merge(total);
  const int lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
  if (lane == 0) {
    maxima[threadIdx.x / kWarp] = total.maximum;
    sums[threadIdx.x / kWarp] = total.sum;
  }
  __syncthreads();
  total = warp_merge(lane < warps ? SoftmaxSum{maxima[lane], sums[lane]} : SoftmaxSum{});
  const float log_sum = total.maximum + logf(total.sum);
  const bool in_range = target >= 0 && target < columns;
  const float target_logit = threadIdx.x == 0 && in_range ? static_cast<float>(x[target]) : NAN;
  if (threadIdx.x == 0) losses[blockIdx.x] = log_sum - target_logit;
  if constexpr (kBackward) {
    __syncthreads();  // x[target] has been read
    const auto gradient = [&](Pack<T, kPack>& pack) {
      for (int j = 0; j < kPack; ++j) {
        pack.v[j] = static_cast<T>(gradient_scale * __expf(static_cast<float>(pack.v[j]) - log_sum));
      }
    };
    for (i -= stride; i - (kUnroll - 1) * stride >= 0; i -= kUnroll * stride) {
      Pack<T, kPack> packs[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) packs[u] = load<T, kPack>(x + i - u * stride);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        gradient(packs[u]);
        store<T, kPack>(x + i - u * stride, packs[u]);
      }
    }
    for (; i >= 0; i -= stride) {
      auto pack = load<T, kPack>(x + i);
      gradient(pack);
      store<T, kPack>(x + i, pack);
    }
    __syncthreads();  // the target's gradient is written over
    if (threadIdx.x == 0 && in_range) {
      x[target] = static_cast<T>(gradient_scale * (__expf(target_logit - log_sum) - 1.0f));
    }
  }
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
      kernel<T, pack(), kBackward><<<static_cast<unsigned>(rows), block_threads(columns / pack(), kMaxThreads), 0,
                                     c10::cuda::getCurrentCUDAStream()>>>(data, targets.const_data_ptr<int64_t>(),
                                                                          losses.mutable_data_ptr<float>(), columns,
                                                                          static_cast<float>(gradient_scale));
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
