#pragma once

#include <cuda_bf16.h>

// Helpers for kernels on flat buffers, in which a thread processes kPack adjacent elements in fp32.
namespace mpzero::parallel {

inline constexpr int kPack = 8;

// Adjacent elements for 16-byte accesses.
template <typename T>
struct alignas(16) Pack {
  T v[kPack];
};

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
// Rounds to nearest, ties to even.
__device__ inline void round_to(float* p, float value) { *p = value; }
__device__ inline void round_to(__nv_bfloat16* p, float value) { *p = __float2bfloat16_rn(value); }

}  // namespace mpzero::parallel
