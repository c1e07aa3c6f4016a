#pragma once

#include <c10/util/BFloat16.h>
#include <cuda_fp8.h>

#include "model/fp8/format.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::fp8::cuda {

using Bf16 = c10::BFloat16;

constexpr int kPack = 8;  // number of values that a thread reads at once

template <Format kFormat>
__device__ unsigned encode_pair(float a, float b) {
  return __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, kFormat == Format::kE4m3 ? __NV_E4M3 : __NV_E5M2);
}

// FP8 data of one row, four values per word.
struct Codes {
  unsigned word[kPack / 4];
};

// `scale`: one scale per column.
template <Format kFormat>
__device__ Codes encode_row(const model::cuda::Pack<Bf16, kPack>& row, const float (&scale)[kPack]) {
  Codes codes;
#pragma unroll
  for (int w = 0; w < kPack / 4; ++w) {
    unsigned halves[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int j = 4 * w + 2 * half;
      halves[half] = encode_pair<kFormat>(static_cast<float>(row.v[j]) * scale[j],
                                          static_cast<float>(row.v[j + 1]) * scale[j + 1]);
    }
    codes.word[w] = halves[0] | halves[1] << 16;
  }
  return codes;
}

}  // namespace mpzero::model::fp8::cuda
