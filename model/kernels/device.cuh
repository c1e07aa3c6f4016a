#pragma once

// Helpers for the CUDA kernels in this directory: types, 16-byte packs, and sums over warps and blocks.
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/BFloat16.h>
#include <cuda_bf16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

namespace mpzero::model::cuda {

constexpr int kWarp = 32;

// kPack adjacent elements that are read or written in one memory access.
template <typename T, int kPack>
struct alignas(sizeof(T) * kPack) Pack {
  T v[kPack];
};

// Vector type of 16, 8 or 4 bytes, so that the compiler keeps packs of these sizes in whole 32-bit registers.
template <int kBytes>
using Word = std::conditional_t<kBytes == 16, uint4, std::conditional_t<kBytes == 8, uint2, unsigned>>;
template <typename T, int kPack>
constexpr bool kIsWord = sizeof(T) * kPack == 16 || sizeof(T) * kPack == 8 || sizeof(T) * kPack == 4;

template <typename T, int kPack>
__device__ Pack<T, kPack> load(const T* at) {
  if constexpr (kIsWord<T, kPack>) {
    const auto bits = *reinterpret_cast<const Word<sizeof(T) * kPack>*>(at);
    return reinterpret_cast<const Pack<T, kPack>&>(bits);
  } else {
    return *reinterpret_cast<const Pack<T, kPack>*>(at);
  }
}

template <typename T, int kPack>
__device__ void store(T* at, const Pack<T, kPack>& pack) {
  if constexpr (kIsWord<T, kPack>) {
    using Bits = Word<sizeof(T) * kPack>;
    *reinterpret_cast<Bits*>(at) = reinterpret_cast<const Bits&>(pack);
  } else {
    *reinterpret_cast<Pack<T, kPack>*>(at) = pack;
  }
}

// Loads data that is read only once, with a hint to evict it from the caches first.
template <typename T, int kPack>
__device__ Pack<T, kPack> load_once(const T* at) {
  if constexpr (sizeof(T) * kPack == 16) {
    const uint4 bits = __ldcs(reinterpret_cast<const uint4*>(at));
    return reinterpret_cast<const Pack<T, kPack>&>(bits);
  } else {
    return load<T, kPack>(at);
  }
}

// Rounds to nearest, with one instruction for two bf16 values.
template <typename T, int kPack>
__device__ Pack<T, kPack> rounded(const float (&x)[kPack]) {
  Pack<T, kPack> pack;
  if constexpr (std::is_same_v<T, c10::BFloat16> && kPack % 2 == 0) {
    auto* pairs = reinterpret_cast<__nv_bfloat162*>(pack.v);
    for (int j = 0; j < kPack / 2; ++j) pairs[j] = __floats2bfloat162_rn(x[2 * j], x[2 * j + 1]);
  } else {
    for (int j = 0; j < kPack; ++j) pack.v[j] = static_cast<T>(x[j]);
  }
  return pack;
}

// Unpacks pairs of bf16 with bit operations: one instruction per element.
template <typename T, int kPack>
__device__ void widen(const Pack<T, kPack>& pack, float (&x)[kPack]) {
  if constexpr (std::is_same_v<T, c10::BFloat16> && kPack % 2 == 0) {
    const auto* pairs = reinterpret_cast<const unsigned*>(pack.v);
    for (int j = 0; j < kPack / 2; ++j) {
      x[2 * j] = __uint_as_float(pairs[j] << 16);
      x[2 * j + 1] = __uint_as_float(pairs[j] & 0xffff0000u);
    }
  } else {
    for (int j = 0; j < kPack; ++j) x[j] = static_cast<float>(pack.v[j]);
  }
}

// Returns each x rounded to T.
template <typename T, int kPack>
__device__ void round_to(float (&x)[kPack]) {
  if constexpr (!std::is_same_v<T, float>) widen(rounded<T>(x), x);
}

// Returns 2^x. Results below 2^-126 are flushed to zero.
__device__ inline float exp2_flushed(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float warp_sum(float x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

// Returns the sum over the block, bitwise identical in every thread. Must be called by all threads.
__device__ inline float block_sum(float x) {
  __shared__ float partial[kWarp];
  const int warps = (blockDim.x + kWarp - 1) / kWarp;
  x = warp_sum(x);
  __syncthreads();  // wait for the readers of the previous call
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = x;
  __syncthreads();
  return warp_sum(static_cast<int>(threadIdx.x) % kWarp < warps ? partial[threadIdx.x % kWarp] : 0.0f);
}

// Returns the amax of a pack as fp32 bits, which have the same order as magnitudes. NaN sorts above infinity.
template <typename T, int kPack>
__device__ unsigned magnitude(const Pack<T, kPack>& pack) {
  unsigned largest = 0;
#pragma unroll
  for (int j = 0; j < kPack; ++j) {
    largest = max(largest, __float_as_uint(static_cast<float>(pack.v[j])) & 0x7fffffffu);
  }
  return largest;
}

// Sets *maximum to max(*maximum, `largest` of all threads). Must be called by all threads of a warp.
__device__ inline void raise(unsigned* maximum, unsigned largest) {
  largest = __reduce_max_sync(0xffffffffu, largest);
  // Most warps skip the atomic operation, because *maximum is already large enough.
  if (threadIdx.x % kWarp == 0 && largest > *static_cast<volatile unsigned*>(maximum)) atomicMax(maximum, largest);
}

// Returns the address of the scalar's bits, or null if `maximum` is undefined.
inline unsigned* maximum_bits(const at::Tensor& maximum) {
  return maximum.defined() ? reinterpret_cast<unsigned*>(maximum.data_ptr<float>()) : nullptr;
}

// Starts a copy of a pack to shared memory. The copy is visible to this thread after __pipeline_wait_prior.
template <typename T, int kPack>
__device__ void copy_async(Pack<T, kPack>* to, const T* from) {
  __pipeline_memcpy_async(to, from, sizeof(*to));
}

// Allows `kernel` to use `bytes` of dynamic shared memory and requests the maximum shared memory carveout for
// occupancy.
template <typename Kernel>
void use_shared_memory(Kernel* kernel, size_t bytes) {
  C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  C10_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
}

// Calls body(T{}, std::integral_constant<int, kPack>{}) with the tensor's type T. A pack has 16 bytes if `columns` and
// the addresses allow it, otherwise one element.
template <typename T, typename Body>
void with_pack(int64_t columns, std::initializer_list<const void*> addresses, Body&& body) {
  constexpr int kPack = 16 / sizeof(T);
  const bool aligned = std::all_of(addresses.begin(), addresses.end(),
                                   [](const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; });
  if (aligned && columns % kPack == 0) {
    body(T{}, std::integral_constant<int, kPack>{});
  } else {
    body(T{}, std::integral_constant<int, 1>{});
  }
}

template <typename Body>
void with_type(at::ScalarType type, Body&& body) {
  if (type == at::kBFloat16) {
    body(c10::BFloat16{});
  } else {
    TORCH_CHECK(type == at::kFloat, "CUDA kernels support fp32 and bf16, not ", type);
    body(float{});
  }
}

// Returns a multiple of the warp size: at least one thread per item, at most `limit` threads.
inline int block_threads(int64_t items, int limit) {
  const int64_t rounded = (items + kWarp - 1) / kWarp * kWarp;
  return static_cast<int>(std::clamp<int64_t>(rounded, kWarp, limit));
}

}  // namespace mpzero::model::cuda
