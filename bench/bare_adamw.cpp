#include "bench/bare_adamw.hpp"

#include <immintrin.h>

// gcc 12 reports the undefined operands in its own intrinsics as errors (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl")

namespace mpzero::bench {
namespace {

constexpr int64_t kLanes = 16;

void update(const BareAdamW& a, int64_t begin, int64_t end) {
  const __m512 beta1 = _mm512_set1_ps(0.9F), rest1 = _mm512_set1_ps(0.1F);
  const __m512 beta2 = _mm512_set1_ps(0.95F), rest2 = _mm512_set1_ps(0.05F);
  const __m512 lr = _mm512_set1_ps(1e-4F), eps = _mm512_set1_ps(1e-8F), decay = _mm512_set1_ps(1 - 1e-5F);
  for (int64_t i = begin; i < end; i += kLanes) {
    const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(a.gradient + i));
    const __m512 g = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    const __m512 m = _mm512_fmadd_ps(_mm512_load_ps(a.exp_avg + i), beta1, _mm512_mul_ps(g, rest1));
    const __m512 v =
        _mm512_fmadd_ps(_mm512_load_ps(a.exp_avg_sq + i), beta2, _mm512_mul_ps(_mm512_mul_ps(g, g), rest2));
    const __m512 step = _mm512_div_ps(m, _mm512_add_ps(_mm512_sqrt_ps(v), eps));
    const __m512 w = _mm512_fnmadd_ps(lr, step, _mm512_mul_ps(_mm512_load_ps(a.master + i), decay));
    _mm512_store_ps(a.exp_avg + i, m);
    _mm512_store_ps(a.exp_avg_sq + i, v);
    _mm512_store_ps(a.master + i, w);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(a.parameter + i),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(w), 16)));
  }
  _mm_sfence();
}

}  // namespace
}  // namespace mpzero::bench

#pragma GCC pop_options

namespace mpzero::bench {

bool bare_adamw(const BareAdamW& arrays, int64_t begin, int64_t end) {
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")) return false;
  update(arrays, begin, end);
  return true;
}

}  // namespace mpzero::bench
