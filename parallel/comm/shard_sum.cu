#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "parallel/comm/shard_sum.hpp"
#include "parallel/streams/packs.cuh"

namespace mpzero::parallel {
namespace {

constexpr int kThreads = 256;
// Two blocks per multiprocessor of the largest GPUs, in a grid-stride loop. This grid keeps enough bytes in flight and
// leaves resources for concurrent compute.
constexpr int64_t kMostBlocks = 264;

template <typename In, typename Out>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(const In* __restrict__ shards, int num_shards, int64_t n, bool add, Out* __restrict__ sum) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * kPack;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack; i < n; i += stride) {
    if (n % kPack == 0) {
      float total[kPack] = {};
      if (add) {
        const auto before = *reinterpret_cast<const Pack<Out>*>(sum + i);
        for (int j = 0; j < kPack; ++j) total[j] = widen(before.v[j]);
      }
#pragma unroll 4
      for (int r = 0; r < num_shards; ++r) {
        const auto shard = *reinterpret_cast<const Pack<In>*>(shards + r * n + i);
        for (int j = 0; j < kPack; ++j) total[j] += widen(shard.v[j]);
      }
      Pack<Out> rounded;
      for (int j = 0; j < kPack; ++j) round_to(&rounded.v[j], total[j]);
      *reinterpret_cast<Pack<Out>*>(sum + i) = rounded;
      continue;
    }
    for (int64_t k = i; k < min(i + kPack, n); ++k) {
      float total = add ? widen(sum[k]) : 0.0F;
      for (int r = 0; r < num_shards; ++r) total += widen(shards[r * n + k]);
      round_to(sum + k, total);
    }
  }
}

template <typename In, typename Out>
void launch(const at::Tensor& shards, const at::Tensor& sum, SumMode mode) {
  const int64_t n = sum.numel();
  const int64_t per_block = static_cast<int64_t>(kThreads) * kPack;
  const auto blocks = static_cast<unsigned>(std::min((n + per_block - 1) / per_block, kMostBlocks));
  if (blocks == 0) return;
  sum_kernel<<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      static_cast<const In*>(shards.const_data_ptr()), static_cast<int>(shards.size(0)), n, mode == SumMode::kAdd,
      static_cast<Out*>(sum.data_ptr()));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

void sum_shards(const at::Tensor& shards, const at::Tensor& sum, SumMode mode) {
  TORCH_CHECK(shards.is_contiguous() && shards.size(1) == sum.numel(),
              "sum_shards: the shapes of shards and sum do not match");
  if (shards.scalar_type() == at::kFloat) {
    TORCH_CHECK(sum.scalar_type() == at::kFloat, "sum_shards: the sum of fp32 shards must be fp32");
    launch<float, float>(shards, sum, mode);
  } else {
    TORCH_CHECK(shards.scalar_type() == at::kBFloat16, "sum_shards: shards must be fp32 or bf16");
    sum.scalar_type() == at::kFloat ? launch<__nv_bfloat16, float>(shards, sum, mode)
                                    : launch<__nv_bfloat16, __nv_bfloat16>(shards, sum, mode);
  }
}

}  // namespace mpzero::parallel
