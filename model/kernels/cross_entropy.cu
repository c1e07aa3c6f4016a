#include <ATen/ops/empty.h>

#include <cmath>

#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {
namespace {

// A running maximum and the sum of exp(x - maximum) (Milakov and Gimelshein, 2018, arXiv:1805.02867).
struct SoftmaxSum {
  float maximum = -INFINITY;
  float sum = 0.0f;

  __device__ void add(float x) {
    if (x > maximum) {
      sum = sum * __expf(maximum - x) + 1.0f;
      maximum = x;
    } else {
      sum += __expf(x - maximum);
    }
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

// One block a row. A target outside [0, columns) makes the loss NaN.
template <typename T, int kPack, bool kBackward>
__global__ void kernel(T* logits, const int64_t* targets, float* losses, int64_t columns, float gradient_scale) {
  __shared__ float maxima[kWarp], sums[kWarp];
  T* x = logits + blockIdx.x * columns;
  const int64_t target = targets[blockIdx.x];
  SoftmaxSum total;
  for (int64_t i = threadIdx.x * kPack; i < columns; i += blockDim.x * kPack) {
    const auto pack = load<T, kPack>(x + i);
    for (int j = 0; j < kPack; ++j) total.add(static_cast<float>(pack.v[j]));
  }
  total = warp_merge(total);
  const int lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
  if (lane == 0) {
    maxima[threadIdx.x / kWarp] = total.maximum;
    sums[threadIdx.x / kWarp] = total.sum;
  }
  __syncthreads();
  total = warp_merge(lane < warps ? SoftmaxSum{maxima[lane], sums[lane]} : SoftmaxSum{});
  const float log_sum = total.maximum + logf(total.sum);
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = target >= 0 && target < columns ? log_sum - static_cast<float>(x[target]) : NAN;
  }
  if constexpr (kBackward) {
    __syncthreads();  // x[target] has been read
    for (int64_t i = threadIdx.x * kPack; i < columns; i += blockDim.x * kPack) {
      auto pack = load<T, kPack>(x + i);
      for (int j = 0; j < kPack; ++j) {
        const float p = __expf(static_cast<float>(pack.v[j]) - log_sum);
        pack.v[j] = static_cast<T>(gradient_scale * (i + j == target ? p - 1.0f : p));
      }
      store<T, kPack>(x + i, pack);
    }
  }
}

template <bool kBackward>
at::Tensor run(at::Tensor logits, const at::Tensor& targets, double gradient_scale) {
  const c10::cuda::CUDAGuard guard(logits.device());
  TORCH_CHECK(logits.is_contiguous() && targets.is_contiguous(), "cross entropy wants contiguous logits and targets");
  const int64_t rows = logits.size(0), columns = logits.size(1);
  at::Tensor losses = at::empty({rows}, logits.options().dtype(at::kFloat));
  if (rows == 0) return losses;
  with_type(logits.scalar_type(), [&](auto type) {
    using T = decltype(type);
    T* data = logits.mutable_data_ptr<T>();
    with_pack<T>(columns, {data}, [&](T, auto pack) {
      kernel<T, pack(), kBackward><<<static_cast<unsigned>(rows), block_threads(columns / pack(), 1024), 0,
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
