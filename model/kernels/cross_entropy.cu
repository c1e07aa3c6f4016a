#include <cooperative_groups.h>

#include <cmath>

#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::cuda {
namespace {

constexpr float kLog2E = 1.4426950408889634f;
constexpr int kMaxThreads = 1024;  // threads per block
constexpr int kUnroll = 4;         // packs in flight per thread
// Blocks per cluster and threads per block. A cluster processes one row.
constexpr int kCluster = 8, kClusterThreads = 256;
// Minimum row length. Shorter rows would leave threads of a cluster idle.
constexpr int64_t kClusterColumns = 16384;

// Running maximum and sum of exp(x - maximum) (Milakov and Gimelshein, 2018, arXiv:1805.02867).
struct SoftmaxSum {
  float maximum = -INFINITY;
  float sum = 0.0f;

  template <typename T, int kPack>
  __device__ void add(const Pack<T, kPack>& pack) {
    float logit[kPack];
    widen(pack, logit);
    float largest = logit[0];
    for (int j = 1; j < kPack; ++j) largest = fmaxf(largest, logit[j]);
    if (largest > maximum) {
      sum *= __expf(maximum - largest);
      maximum = largest;
    }
    const float base = maximum == -INFINITY ? 0.0f : maximum;
    float added = 0.0f;
    for (const float value : logit) added += exp2_flushed((value - base) * kLog2E);
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

// Returns the maximum of packs, which are passed as bits.
template <typename T, int kPacks>
__device__ float largest(const uint4 (&packs)[kPacks]) {
  if constexpr (std::is_same_v<T, c10::BFloat16>) {
    const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(packs);
    __nv_bfloat162 both = pairs[0];
#pragma unroll
    for (int i = 1; i < kPacks * 4; ++i) both = __hmax2(both, pairs[i]);
    return fmaxf(__low2float(both), __high2float(both));
  } else {
    const auto* elements = reinterpret_cast<const float*>(packs);
    float maximum = elements[0];
#pragma unroll
    for (int i = 1; i < kPacks * 4; ++i) maximum = fmaxf(maximum, elements[i]);
    return maximum;
  }
}

// Prevents the compiler from keeping values computed from `bits` before this point, to save registers.
[[maybe_unused]] __device__ void forget(uint4& bits) {
  asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
}

// A cluster of kCluster blocks keeps one row in registers, kPacks packs per thread, so that the row is read and written
// only once. Several clusters share a multiprocessor: while one cluster waits for memory, another computes
// exponentials, which take half as long as the memory accesses. (A row in the shared memory of a single block prevents
// this overlap and is no faster than reading the row twice.) Results are equal to those of `kernel`.
template <typename T, int kPacks>
__global__ void __launch_bounds__(kClusterThreads, kMaxThreads / kClusterThreads)
    cluster_kernel(T* logits, const int64_t* targets, const float* weights, float* losses, int columns,
                   float gradient_scale) {
#if __CUDA_ARCH__ >= 900
  constexpr int kPack = 16 / sizeof(T), kWarps = kClusterThreads / kWarp;
  __shared__ float2 shares[kCluster * kWarps];  // maximum and sum of each warp of the cluster
  const auto cluster = cooperative_groups::this_cluster();
  auto started = cluster.barrier_arrive();
  const int rank = static_cast<int>(blockIdx.x % kCluster), packs = columns / kPack;
  const int64_t row = blockIdx.x / kCluster, target = targets[row];
  T* x = logits + row * columns;
  const int first = rank * kClusterThreads + static_cast<int>(threadIdx.x);
  constexpr int kStride = kCluster * kClusterThreads;
  const unsigned nothing = sizeof(T) == 2 ? 0xff80ff80u : 0xff800000u;  // minus infinity
  uint4 held[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    held[k] = make_uint4(nothing, nothing, nothing, nothing);
    if (first + k * kStride < packs) held[k] = __ldcs(reinterpret_cast<const uint4*>(x) + first + k * kStride);
  }
  const bool in_range = target >= 0 && target < columns, writes_loss = rank == 0 && threadIdx.x == 0;
  const float target_logit = writes_loss && in_range ? static_cast<float>(x[target]) : NAN;

  SoftmaxSum total{.maximum = largest<T>(held)};
  const float base = total.maximum == -INFINITY ? 0.0f : total.maximum;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    float logit[kPack];
    forget(held[k]);
    widen(reinterpret_cast<const Pack<T, kPack>&>(held[k]), logit);
    for (const float value : logit) total.sum += exp2_flushed((value - base) * kLog2E);
  }
  total = warp_merge(total);
  const int lane = threadIdx.x % kWarp;
  cluster.barrier_wait(std::move(started));  // the shared memory of all other blocks is available
  if (lane < kCluster) {
    cluster.map_shared_rank(shares, lane)[rank * kWarps + threadIdx.x / kWarp] = {total.maximum, total.sum};
  }
  cluster.sync();
  total = {};
  for (int i = lane; i < kCluster * kWarps; i += kWarp) total = merge(total, {shares[i].x, shares[i].y});
  total = warp_merge(total);
  if (writes_loss) losses[row] = total.maximum + logf(total.sum) - target_logit;

  if (weights != nullptr) gradient_scale *= weights[row];
  const float log2_sum = log2f(total.sum);
  const int target_pack = in_range ? static_cast<int>(target) / kPack : -1;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int at = first + k * kStride;
    if (at >= packs) continue;
    float gradient[kPack];
    forget(held[k]);
    widen(reinterpret_cast<const Pack<T, kPack>&>(held[k]), gradient);
    for (float& g : gradient) g = exp2_flushed((g - total.maximum) * kLog2E - log2_sum);
    if (at == target_pack) {
      for (int j = 0; j < kPack; ++j) gradient[j] -= j == static_cast<int>(target) % kPack ? 1.0f : 0.0f;
    }
    for (float& g : gradient) g *= gradient_scale;
    store<T, kPack>(x + static_cast<int64_t>(at) * kPack, rounded<T>(gradient));
  }
#endif
}

// Returns true if the current GPU supports clusters and the program contains `kernel` for this GPU.
template <typename Kernel>
bool compiled_for_clusters(Kernel* kernel) {
  cudaFuncAttributes attributes;
  C10_CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  return attributes.ptxVersion >= 90;
}

template <typename T, int kPacks>
bool launch_clusters(T* logits, const int64_t* targets, const float* weights, float* losses, int64_t rows, int columns,
                     float scale) {
  const auto row_kernel = cluster_kernel<T, kPacks>;
  if (!compiled_for_clusters(row_kernel)) return false;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(rows * kCluster));
  config.blockDim = dim3(kClusterThreads);
  config.stream = c10::cuda::getCurrentCUDAStream();
  config.attrs = &attribute;
  config.numAttrs = 1;
  C10_CUDA_CHECK(cudaLaunchKernelEx(&config, row_kernel, logits, targets, weights, losses, columns, scale));
  return true;
}

// Launches cluster_kernel if the row is long enough to use all threads and short enough to fit. Returns true if
// launched.
template <typename T, int kPacks, int... kMore>
bool launch_fitting_clusters(std::integer_sequence<int, kPacks, kMore...>, T* logits, const int64_t* targets,
                             const float* weights, float* losses, int64_t rows, int columns, float scale) {
  constexpr int kHeld = kPacks * kClusterThreads * kCluster * 16 / static_cast<int>(sizeof(T));
  if (columns <= kHeld) {
    return launch_clusters<T, kPacks>(logits, targets, weights, losses, rows, columns, scale);
  }
  if constexpr (sizeof...(kMore) > 0) {
    return launch_fitting_clusters<T>(std::integer_sequence<int, kMore...>{}, logits, targets, weights, losses, rows,
                                      columns, scale);
  } else {
    return false;
  }
}

// Processes one row per block. A target outside [0, columns) makes the loss NaN. The second pass reads the row
// backward, because its end is still in the cache.
template <typename T, int kPack, bool kBackward>
__global__ void __launch_bounds__(kMaxThreads) kernel(T* logits, const int64_t* targets, const float* weights,
                                                      float* losses, int64_t columns, float gradient_scale) {
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
    __syncthreads();  // wait until x[target] is read
    if (weights != nullptr) gradient_scale *= weights[blockIdx.x];
    const auto gradient = [&](Pack<T, kPack>& pack) {
      float value[kPack];
      widen(pack, value);
      for (float& v : value) v = gradient_scale * exp2_flushed((v - log_sum) * kLog2E);
      pack = rounded<T>(value);
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
    __syncthreads();  // wait before the target's gradient is overwritten
    if (threadIdx.x == 0 && in_range) {
      x[target] = static_cast<T>(gradient_scale * (__expf(target_logit - log_sum) - 1.0f));
    }
  }
}

template <bool kBackward>
void run(at::Tensor& logits, const at::Tensor& targets, double gradient_scale, const at::Tensor& weights,
         at::Tensor& losses) {
  const c10::cuda::CUDAGuard guard(logits.device());
  TORCH_CHECK(logits.is_contiguous() && targets.is_contiguous(), "cross entropy expects contiguous logits and targets");
  TORCH_CHECK(!weights.defined() || weights.is_contiguous(), "cross entropy expects contiguous weights");
  const float* const row_weights = weights.defined() ? weights.const_data_ptr<float>() : nullptr;
  const int64_t rows = logits.size(0), columns = logits.size(1);
  TORCH_CHECK(columns < (int64_t{1} << 30), "cross entropy supports rows of fewer than 2^30 logits");
  if (rows == 0) return;
  with_type(logits.scalar_type(), [&](auto type) {
    using T = decltype(type);
    T* data = logits.mutable_data_ptr<T>();
    with_pack<T>(columns, {data}, [&](T, auto pack) {
      if constexpr (kBackward && pack() > 1) {
        if (columns >= kClusterColumns && rows < (1 << 27) &&
            launch_fitting_clusters<T>(std::integer_sequence<int, 4, 8, 10, 12>{}, data,
                                       targets.const_data_ptr<int64_t>(), row_weights, losses.mutable_data_ptr<float>(),
                                       rows, static_cast<int>(columns), static_cast<float>(gradient_scale))) {
          return;
        }
      }
      kernel<T, pack(), kBackward><<<static_cast<unsigned>(rows), block_threads(columns / pack(), kMaxThreads), 0,
                                     c10::cuda::getCurrentCUDAStream()>>>(data, targets.const_data_ptr<int64_t>(),
                                                                          row_weights, losses.mutable_data_ptr<float>(),
                                                                          columns, static_cast<float>(gradient_scale));
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
}

}  // namespace

void cross_entropy(at::Tensor& logits, const at::Tensor& targets, std::optional<double> gradient_scale,
                   const at::Tensor& weights, at::Tensor& losses) {
  gradient_scale ? run<true>(logits, targets, *gradient_scale, weights, losses)
                 : run<false>(logits, targets, 0.0, weights, losses);
}

}  // namespace mpzero::model::cuda
