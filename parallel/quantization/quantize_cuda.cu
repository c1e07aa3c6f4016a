#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "parallel/quantization/quantize_kernels.hpp"
#include "parallel/streams/packs.cuh"

// A thread processes kPack adjacent elements of a block, and a block's threads are adjacent in a warp. Fuses the same
// products as quantize_host.cpp; __fmul_rn and __fadd_rn are not fused.
namespace mpzero::parallel {
namespace {

constexpr int kThreads = 256;
// As in shard_sum.cu, keeps enough bytes in flight and leaves resources for concurrent compute.
constexpr int64_t kMostBlocks = 264;

template <int kBits>
struct alignas(kBits) CodePack {
  uint8_t bytes[kBits];  // codes of kPack elements
};

template <int kBits>
__device__ inline void pack(const int (&codes)[kPack], CodePack<kBits>& out) {
#pragma unroll
  for (int j = 0; j < kBits; ++j) {
    if constexpr (kBits == 8) {
      out.bytes[j] = static_cast<uint8_t>(codes[j]);
    } else {
      out.bytes[j] = static_cast<uint8_t>((codes[2 * j] & 15) | ((codes[2 * j + 1] & 15) << 4));
    }
  }
}

template <int kBits>
__device__ inline void unpack(const CodePack<kBits>& in, float (&codes)[kPack]) {
#pragma unroll
  for (int j = 0; j < kBits; ++j) {
    const auto byte = static_cast<int8_t>(in.bytes[j]);
    if constexpr (kBits == 8) {
      codes[j] = static_cast<float>(byte);
    } else {
      codes[2 * j] = static_cast<float>(static_cast<int8_t>(in.bytes[j] << 4) >> 4);
      codes[2 * j + 1] = static_cast<float>(byte >> 4);
    }
  }
}

// Returns the maximum over a block's threads. All threads of a warp must call it.
template <int kLanes>
__device__ inline uint32_t largest_of(uint32_t top) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    top = max(top, __shfl_xor_sync(0xffffffffu, top, step, kLanes));
  }
  return top;
}

// See quantize_host.cpp.
__device__ inline void scale_of(uint32_t top, int largest_code, float& scale, float& inverse) {
  scale = inverse = 0.0F;
  if (top < __float_as_uint(kSmallestMaximum)) return;
  if (top >= 0x7f800000u) {
    scale = __uint_as_float(0x7fc00000u);
    return;
  }
  const auto levels = static_cast<float>(largest_code);
  scale = __fdiv_rn(__uint_as_float(top), levels);
  inverse = __fdiv_rn(levels, __uint_as_float(top));
}

// `kResidual`: quantizes values + residual and updates the residual. Otherwise, quantizes values - other.
template <bool kResidual, int kBits, int kBlock, typename Value, typename Other>
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const Value* __restrict__ values, Other* __restrict__ other, uint8_t* __restrict__ codes,
                    float* __restrict__ scales, int64_t count, int largest_code, RoundingKey key, uint32_t first) {
  constexpr int kLanes = kBlock / kPack;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * kPack;
  const int64_t rounded = (count + kBlock - 1) / kBlock * kBlock;
  // All threads of a warp leave the loop together, because the stride and a warp's elements are multiples of a block of
  // 256.
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
       i - (threadIdx.x % 32) * kPack < rounded; i += stride) {
    const bool inside = i < count;
    float x[kPack] = {};
    uint32_t top = 0;
    if (inside) {
      const auto v = *reinterpret_cast<const Pack<Value>*>(values + i);
      const auto o = *reinterpret_cast<const Pack<Other>*>(other + i);
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        x[j] = kResidual ? __fadd_rn(widen(v.v[j]), widen(o.v[j])) : __fsub_rn(widen(v.v[j]), widen(o.v[j]));
        top = max(top, __float_as_uint(x[j]) & 0x7fffffffu);
      }
    }
    top = largest_of<kLanes>(top);
    if (!inside) continue;
    float scale, inverse;
    scale_of(top, largest_code, scale, inverse);
    if (i % kBlock == 0) scales[i / kBlock] = scale;
    int code[kPack];
    Pack<Other> left;
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      code[j] = 0;
      float rest = scale == 0.0F ? x[j] : 0.0F;
      if (inverse != 0.0F) {
        const float t = __fmul_rn(x[j], inverse);
        if constexpr (kResidual) {
          const float moved = __fadd_rn(t, random_fraction(first + static_cast<uint32_t>(i + j), key));
          code[j] = min(max(static_cast<int>(floorf(moved)), -largest_code), largest_code);
          rest = __fmaf_rn(-static_cast<float>(code[j]), scale, x[j]);
        } else {
          code[j] = static_cast<int>(rintf(t));
        }
      }
      if constexpr (kResidual) round_to(&left.v[j], rest);
    }
    if constexpr (kResidual) *reinterpret_cast<Pack<Other>*>(other + i) = left;
    CodePack<kBits> packed;
    pack(code, packed);
    *reinterpret_cast<CodePack<kBits>*>(codes + i * kBits / 8) = packed;
  }
}

template <int kBits, int kBlock, typename Own, typename Sum>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(const uint8_t* __restrict__ messages, int64_t scales_offset, int64_t message_stride, int64_t rows,
               int64_t own_row, const Own* own, Sum* sum, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * kPack;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack; i < count; i += stride) {
    float total[kPack] = {};
    for (int64_t row = 0; row < rows; ++row) {
      if (row == own_row) {
        const auto mine = *reinterpret_cast<const Pack<Own>*>(own + i);
#pragma unroll
        for (int j = 0; j < kPack; ++j) total[j] = __fadd_rn(total[j], widen(mine.v[j]));
        continue;
      }
      const uint8_t* const message = messages + row * message_stride;
      const float scale =
          *reinterpret_cast<const float*>(message + scales_offset + i / kBlock * static_cast<int64_t>(sizeof(float)));
      float codes[kPack];
      unpack(*reinterpret_cast<const CodePack<kBits>*>(message + i * kBits / 8), codes);
#pragma unroll
      for (int j = 0; j < kPack; ++j) total[j] = __fmaf_rn(codes[j], scale, total[j]);
    }
    Pack<Sum> rounded;
#pragma unroll
    for (int j = 0; j < kPack; ++j) round_to(&rounded.v[j], total[j]);
    *reinterpret_cast<Pack<Sum>*>(sum + i) = rounded;
  }
}

unsigned grid_of(int64_t count) {
  const int64_t per_block = static_cast<int64_t>(kThreads) * kPack;
  return static_cast<unsigned>(std::min((count + per_block - 1) / per_block, kMostBlocks));
}

template <bool kResidual>
void quantize(const QuantizedSpans& s, RoundingKey key, uint32_t first) {
  if (s.count == 0) return;
  with_types<__nv_bfloat16>(s.values_are_bf16, s.residual_is_bf16, [&](auto types) {
    using Value = typename decltype(types)::First;
    using Other = typename decltype(types)::Second;
    const auto kernel = s.format.bits == 8 ? quantize_kernel<kResidual, 8, kInt8.block, Value, Other>
                                           : quantize_kernel<kResidual, 4, kInt4.block, Value, Other>;
    kernel<<<grid_of(s.count), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        static_cast<const Value*>(s.values), static_cast<Other*>(s.residual), reinterpret_cast<uint8_t*>(s.codes),
        s.scales, s.count, s.format.largest_code, key, first);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

void quantize_with_residual_cuda(const QuantizedSpans& spans, RoundingKey key, uint32_t first) {
  quantize<true>(spans, key, first);
}

void quantize_difference_cuda(const QuantizedSpans& spans) { quantize<false>(spans, {}, 0); }

void sum_messages_cuda(const SummedSpans& s) {
  if (s.count == 0) return;
  with_types<__nv_bfloat16>(s.own_is_bf16, s.sum_is_bf16, [&](auto types) {
    using Own = typename decltype(types)::First;
    using Sum = typename decltype(types)::Second;
    const auto kernel =
        s.format.bits == 8 ? sum_kernel<8, kInt8.block, Own, Sum> : sum_kernel<4, kInt4.block, Own, Sum>;
    kernel<<<grid_of(s.count), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const uint8_t*>(s.codes), s.scales_offset, s.stride, s.rows, s.own_row,
        static_cast<const Own*>(s.own), static_cast<Sum*>(s.sum), s.count);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace mpzero::parallel
