#pragma once

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

// Compiles a function and its inlined callees for x86-64-v4, x86-64-v3 and the default CPU, and selects a version at
// run time.
#define MPZERO_FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define MPZERO_INLINE inline __attribute__((always_inline))

// Functions with vector parameters are always inlined, so vectors wider than the CPU's registers do not affect the ABI.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace mpzero::model::cpu {

// 16 fp32 values: one register with AVX-512, several registers otherwise. The order of additions does not depend on the
// number of registers.
inline constexpr int64_t kLanes = 16;
using Floats = float __attribute__((vector_size(64)));
using Words = uint32_t __attribute__((vector_size(64)));

namespace unaligned {
using Floats = float __attribute__((vector_size(64), aligned(4), may_alias));
using Halves = uint16_t __attribute__((vector_size(32), aligned(2), may_alias));
}  // namespace unaligned

MPZERO_INLINE Floats load(const float* p) { return *reinterpret_cast<const unaligned::Floats*>(p); }
MPZERO_INLINE Floats load(const c10::BFloat16* p) {
  return reinterpret_cast<Floats>(__builtin_convertvector(*reinterpret_cast<const unaligned::Halves*>(p), Words)
                                  << 16U);
}

MPZERO_INLINE void store(float* p, Floats x) { *reinterpret_cast<unaligned::Floats*>(p) = x; }
// Stores x as bf16, rounded to nearest even.
MPZERO_INLINE void store(c10::BFloat16* p, Floats x) {
  using Halves = uint16_t __attribute__((vector_size(32)));
  const Words bits = reinterpret_cast<Words>(x);
  const Words rounded = (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;
  const Words nan = Words{} + 0x7FC0U;
  *reinterpret_cast<unaligned::Halves*>(p) = __builtin_convertvector(x == x ? rounded : nan, Halves);
}

// Loads or stores the first `count` < 16 lanes. A load fills all other lanes with `rest`.
template <typename T>
MPZERO_INLINE Floats load_first(const T* p, int64_t count, float rest = 0) {
  float values[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) values[i] = i < count ? static_cast<float>(p[i]) : rest;
  return load(values);
}
template <typename T>
MPZERO_INLINE void store_first(T* p, Floats x, int64_t count) {
  T values[kLanes];
  store(values, x);
  std::memcpy(p, values, static_cast<size_t>(count) * sizeof(T));
}

// Calls body(index, load, store) for each group of 16 out of `count` elements and for the remainder. `load` and `store`
// access the group's elements.
template <typename Body>
MPZERO_INLINE void for_each_lanes(int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    body(
        i, [](const auto* p) __attribute__((always_inline)) { return load(p); },
        [](auto* p, Floats x) __attribute__((always_inline)) { store(p, x); });
  }
  if (const int64_t rest = count - i; rest > 0) {
    body(
        i, [rest](const auto* p) __attribute__((always_inline)) { return load_first(p, rest); },
        [rest](auto* p, Floats x) __attribute__((always_inline)) { store_first(p, x, rest); });
  }
}

// Returns x rounded to T.
template <typename T>
MPZERO_INLINE Floats rounded(Floats x) {
  T values[kLanes];
  store(values, x);
  return load(values);
}

MPZERO_INLINE float sum(Floats x) {
  float half[8];
  for (int i = 0; i < 8; ++i) half[i] = x[i] + x[i + 8];
  for (int i = 0; i < 4; ++i) half[i] += half[i + 4];
  return (half[0] + half[2]) + (half[1] + half[3]);
}
MPZERO_INLINE Floats larger(Floats x, Floats y) { return x > y ? x : y; }
MPZERO_INLINE float largest(Floats x) {
  float result = x[0];
  for (int i = 1; i < kLanes; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

// Returns e^x with an error of at most 2 ULP. Subnormal results (x < -87.3) are flushed to 0, and NaN stays NaN. As in
// Cephes' expf, a multiple of ln 2, split into two parts, is subtracted from the argument, and a polynomial of degree 7
// is evaluated.
MPZERO_INLINE Floats exp(Floats x) {
  const Floats zero{}, low = zero - 87.3F, high = zero + 88.0F;
  const Floats bounded = x < low ? low : x > high ? high : x;
  const Floats shifter = zero + 12582912.0F;  // 1.5 * 2^23; rounds to an integer when added
  const Floats shifted = bounded * 1.44269504088896341F + shifter;
  const Floats n = shifted - shifter;
  const Floats r = (bounded - n * 0.693359375F) + n * 2.12194440e-4F;
  Floats p = zero + 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const Words scale = (reinterpret_cast<Words>(shifted) + 127U) << 23U;
  return x < low ? zero : p * reinterpret_cast<Floats>(scale);
}

}  // namespace mpzero::model::cpu
