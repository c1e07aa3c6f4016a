#include "parallel/adamw_avx512.hpp"

#include <immintrin.h>

#include "parallel/bf16_bits.hpp"

// What follows, and nothing of the headers above, is compiled for AVX-512.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl")

namespace mpzero::parallel {
namespace {

constexpr int64_t kLanes = 16;

__m512 load(const float* p) { return _mm512_loadu_ps(p); }
__m512 load(const Bf16Bits* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

void store(float* p, __m512 value) { _mm512_storeu_ps(p, value); }
// Rounds as round_to<Bf16Bits> does.
void store(Bf16Bits* p, __m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m256i result = _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(kBf16Nan)));
  auto* destination = reinterpret_cast<__m256i*>(p);
  if (reinterpret_cast<uintptr_t>(p) % sizeof(__m256i) == 0) {
    _mm256_stream_si256(destination, result);
  } else {
    _mm256_storeu_si256(destination, result);
  }
}

template <typename Gradient, typename Parameter>
int64_t update_range(const AdamWSpans& spans, const AdamWUpdate& u, int64_t begin, int64_t end) {
  const auto* gradient = static_cast<const Gradient*>(spans.gradient);
  auto* parameter = static_cast<Parameter*>(spans.parameter);
  const __m512 beta1 = _mm512_set1_ps(u.beta1), one_minus_beta1 = _mm512_set1_ps(1.0F - u.beta1);
  const __m512 beta2 = _mm512_set1_ps(u.beta2), one_minus_beta2 = _mm512_set1_ps(1.0F - u.beta2);
  const __m512 scale = _mm512_set1_ps(u.gradient_scale), decay = _mm512_set1_ps(u.decay);
  const __m512 step_size = _mm512_set1_ps(u.step_size), eps = _mm512_set1_ps(u.eps);
  const __m512 inverse_sqrt_bias2 = _mm512_set1_ps(u.inverse_sqrt_bias2);
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    const __m512 g = _mm512_mul_ps(load(gradient + i), scale);
    const __m512 m =
        _mm512_fmadd_ps(beta1, load(static_cast<float*>(spans.exp_avg) + i), _mm512_mul_ps(one_minus_beta1, g));
    const __m512 v = _mm512_fmadd_ps(beta2, load(static_cast<float*>(spans.exp_avg_sq) + i),
                                     _mm512_mul_ps(_mm512_mul_ps(one_minus_beta2, g), g));
    const __m512 denominator = _mm512_fmadd_ps(_mm512_sqrt_ps(v), inverse_sqrt_bias2, eps);
    const __m512 decayed = _mm512_mul_ps(load(spans.master + i), decay);
    const __m512 w = _mm512_fnmadd_ps(step_size, _mm512_div_ps(m, denominator), decayed);
    store(static_cast<float*>(spans.exp_avg) + i, m);
    store(static_cast<float*>(spans.exp_avg_sq) + i, v);
    store(spans.master + i, w);
    store(parameter + i, w);
  }
  _mm_sfence();
  return i;
}

}  // namespace

int64_t adamw_avx512(const AdamWSpans& spans, const AdamWUpdate& update, int64_t begin, int64_t end) {
  if (spans.gradient_is_bf16) {
    return spans.parameter_is_bf16 ? update_range<Bf16Bits, Bf16Bits>(spans, update, begin, end)
                                   : update_range<Bf16Bits, float>(spans, update, begin, end);
  }
  return spans.parameter_is_bf16 ? update_range<float, Bf16Bits>(spans, update, begin, end)
                                 : update_range<float, float>(spans, update, begin, end);
}

}  // namespace mpzero::parallel

#pragma GCC pop_options

namespace mpzero::parallel {

bool cpu_has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

}  // namespace mpzero::parallel
