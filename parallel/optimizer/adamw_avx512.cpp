#include "parallel/optimizer/adamw_avx512.hpp"

#include <immintrin.h>

#include <type_traits>

#include "parallel/optimizer/bf16_bits.hpp"
#include "parallel/optimizer/random_bits.hpp"

// Only the following code, not the headers above, is compiled for AVX-512.
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

// Rounds like round_to<Bf16Bits>().
__m256i rounded(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i upper = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(upper, nan, _mm512_set1_epi32(kBf16Nan)));
}

// Equal to random_bits().
__m512i random_bits_of(__m512i h) {
  h = _mm512_mullo_epi32(_mm512_xor_si512(h, _mm512_srli_epi32(h, 16)),
                         _mm512_set1_epi32(static_cast<int>(0x85ebca6bU)));
  h = _mm512_mullo_epi32(_mm512_xor_si512(h, _mm512_srli_epi32(h, 13)),
                         _mm512_set1_epi32(static_cast<int>(0xc2b2ae35U)));
  return _mm512_xor_si512(h, _mm512_srli_epi32(h, 16));
}

// Rounds like round_randomly_to<Bf16Bits>().
__m256i rounded_randomly(__m512 value, __m512i random) {
  const __m512i bits = _mm512_castps_si512(value), exponent = _mm512_set1_epi32(0x7F800000);
  const __mmask16 finite = _mm512_cmpneq_epi32_mask(_mm512_and_si512(bits, exponent), exponent);
  const __m512i upper = _mm512_srli_epi32(_mm512_mask_add_epi32(bits, finite, bits, random), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(upper, nan, _mm512_set1_epi32(kBf16Nan)));
}

void store_parameter(float* p, __m512 value, bool /*past_caches*/) { _mm512_storeu_ps(p, value); }
void store_parameter(Bf16Bits* p, __m512 value, bool past_caches) {
  auto* destination = reinterpret_cast<__m256i*>(p);
  if (past_caches) {
    _mm256_stream_si256(destination, rounded(value));
  } else {
    _mm256_storeu_si256(destination, rounded(value));
  }
}

// Store new states in place (in the caches), or in separate memory with non-temporal stores.
enum class Destination { kInPlace, kStreamed };

template <Destination destination>
void store_state(float* p, __m512 value) {
  if constexpr (destination == Destination::kStreamed) {
    _mm512_stream_ps(p, value);
  } else {
    _mm512_storeu_ps(p, value);
  }
}
template <Destination destination>
void store_state(Bf16Bits* p, __m256i value) {
  auto* const to = reinterpret_cast<__m256i*>(p);
  if constexpr (destination == Destination::kStreamed) {
    _mm256_stream_si256(to, value);
  } else {
    _mm256_storeu_si256(to, value);
  }
}

template <typename Gradient, typename Moment, typename Parameter, Destination destination>
int64_t update_range(const AdamWSpans& spans, const AdamWUpdate& u, int64_t begin, int64_t end) {
  const auto* gradient = static_cast<const Gradient*>(spans.gradient);
  auto* parameter = static_cast<Parameter*>(spans.parameter);
  const auto* exp_avg = static_cast<const Moment*>(spans.exp_avg);
  const auto* exp_avg_sq = static_cast<const Moment*>(spans.exp_avg_sq);
  const bool in_place = spans.next_master == nullptr;
  float* const next_master = in_place ? spans.master : spans.next_master;
  auto* const next_exp_avg = static_cast<Moment*>(in_place ? spans.exp_avg : spans.next_exp_avg);
  auto* const next_exp_avg_sq = static_cast<Moment*>(in_place ? spans.exp_avg_sq : spans.next_exp_avg_sq);
  const __m512 beta1 = _mm512_set1_ps(u.beta1), one_minus_beta1 = _mm512_set1_ps(1.0F - u.beta1);
  const __m512 beta2 = _mm512_set1_ps(u.beta2), one_minus_beta2 = _mm512_set1_ps(1.0F - u.beta2);
  const __m512 scale = _mm512_set1_ps(u.gradient_scale), decay = _mm512_set1_ps(u.decay);
  const __m512 step_size = _mm512_set1_ps(u.step_size), eps = _mm512_set1_ps(u.eps);
  const __m512 inverse_sqrt_bias2 = _mm512_set1_ps(u.inverse_sqrt_bias2);
  const bool past_caches =
      !spans.parameter_stays_cached && reinterpret_cast<uintptr_t>(parameter + begin) % sizeof(__m256i) == 0;
  // bf16 moments require that the range lies between two multiples of 2^32 in the model; see adamw_host_range().
  const __m512i salt = _mm512_set1_epi32(static_cast<int>(random_salt(spans.first + begin, u.rounding_seed)));
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  int64_t i = begin;
  // Fuses exactly the same products as adamw_host.cpp.
  for (; i + kLanes <= end; i += kLanes) {
    const __m512 g = _mm512_mul_ps(load(gradient + i), scale);
    const __m512 m = _mm512_fmadd_ps(beta1, load(exp_avg + i), _mm512_mul_ps(one_minus_beta1, g));
    const __m512 v = _mm512_fmadd_ps(beta2, load(exp_avg_sq + i), _mm512_mul_ps(_mm512_mul_ps(one_minus_beta2, g), g));
    const __m512 denominator = _mm512_fmadd_ps(_mm512_sqrt_ps(v), inverse_sqrt_bias2, eps);
    const __m512 decayed = _mm512_mul_ps(load(spans.master + i), decay);
    const __m512 w = _mm512_fnmadd_ps(step_size, _mm512_div_ps(m, denominator), decayed);
    if constexpr (std::is_same_v<Moment, float>) {
      store_state<destination>(next_exp_avg + i, m);
      store_state<destination>(next_exp_avg_sq + i, v);
    } else {
      const __m512i position = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(spans.first + i)), lanes);
      const __m512i random = random_bits_of(_mm512_xor_si512(position, salt));
      const __m512i lower = _mm512_and_si512(random, _mm512_set1_epi32(0xFFFF));
      store_state<destination>(next_exp_avg + i, rounded_randomly(m, lower));
      store_state<destination>(next_exp_avg_sq + i, rounded_randomly(v, _mm512_srli_epi32(random, 16)));
    }
    store_state<destination>(next_master + i, w);
    store_parameter(parameter + i, w, past_caches);
  }
  _mm_sfence();
  return i;
}

bool can_stream(const void* p) { return reinterpret_cast<uintptr_t>(p) % sizeof(__m512) == 0; }

template <typename Moment, Destination destination>
int64_t update_types(const AdamWSpans& spans, const AdamWUpdate& update, int64_t begin, int64_t end) {
  if (spans.gradient_is_bf16) {
    return spans.parameter_is_bf16 ? update_range<Bf16Bits, Moment, Bf16Bits, destination>(spans, update, begin, end)
                                   : update_range<Bf16Bits, Moment, float, destination>(spans, update, begin, end);
  }
  return spans.parameter_is_bf16 ? update_range<float, Moment, Bf16Bits, destination>(spans, update, begin, end)
                                 : update_range<float, Moment, float, destination>(spans, update, begin, end);
}

template <typename Moment>
int64_t update_with(const AdamWSpans& spans, const AdamWUpdate& update, int64_t begin, int64_t end) {
  const bool streamed = spans.next_master != nullptr && begin % kLanes == 0 && can_stream(spans.next_master) &&
                        can_stream(spans.next_exp_avg) && can_stream(spans.next_exp_avg_sq);
  return streamed ? update_types<Moment, Destination::kStreamed>(spans, update, begin, end)
                  : update_types<Moment, Destination::kInPlace>(spans, update, begin, end);
}

}  // namespace

int64_t adamw_avx512(const AdamWSpans& spans, const AdamWUpdate& update, int64_t begin, int64_t end) {
  return spans.moments_are_bf16 ? update_with<Bf16Bits>(spans, update, begin, end)
                                : update_with<float>(spans, update, begin, end);
}

}  // namespace mpzero::parallel

#pragma GCC pop_options

namespace mpzero::parallel {

bool cpu_has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

}  // namespace mpzero::parallel
