#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>

#include "parallel/quantization/nf4.hpp"
#include "parallel/streams/packs.cuh"

// Fuses the same products as nf4_host.cpp.
namespace mpzero::parallel {
namespace {

constexpr int kThreads = 256;
// Loads in flight per thread. A warp reads 128 and writes 512 contiguous bytes at a time.
constexpr int kLoads = 4;
constexpr int64_t kPerBlock = static_cast<int64_t>(kThreads) * kLoads * kPack;
static_assert(kNf4Group % kPerBlock == 0 && kPack == 2 * sizeof(uint32_t));

template <typename Value>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const uint32_t* __restrict__ codes, const uint8_t* __restrict__ scale_codes,
                  const float2* __restrict__ groups, Value* __restrict__ values, Nf4Levels levels) {
  __shared__ float level[16];  // 16 banks, so accesses do not conflict
  if (threadIdx.x < 16) level[threadIdx.x] = levels.v[threadIdx.x];
  __syncthreads();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kLoads + threadIdx.x;
  const float2 group = groups[first * kPack / kNf4Group];
  uint32_t packed[kLoads];
#pragma unroll
  for (int j = 0; j < kLoads; ++j) packed[j] = codes[first + j * kThreads];
#pragma unroll
  for (int j = 0; j < kLoads; ++j) {
    const int64_t i = (first + j * kThreads) * kPack;
    const float scale = __fmaf_rn(static_cast<float>(scale_codes[i / kNf4Block]), group.y, group.x);
    Pack<Value> out;
#pragma unroll
    for (int k = 0; k < kPack; ++k) round_to(&out.v[k], __fmul_rn(level[(packed[j] >> (4 * k)) & 15U], scale));
    *reinterpret_cast<Pack<Value>*>(values + i) = out;
  }
}

template <typename Value>
void decode(const Nf4Spans& s) {
  const auto parts = nf4_parts<const float2>(s.message, s.count);
  decode_kernel<Value><<<static_cast<unsigned>(s.count / kPerBlock), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      reinterpret_cast<const uint32_t*>(parts.codes), parts.scale_codes, parts.groups, static_cast<Value*>(s.values),
      kNf4);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

void decode_nf4_cuda(const Nf4Spans& spans) {
  if (spans.count == 0) return;
  spans.values_are_bf16 ? decode<__nv_bfloat16>(spans) : decode<float>(spans);
}

}  // namespace mpzero::parallel
