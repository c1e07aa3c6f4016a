#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "parallel/optimizer/bf16_bits.hpp"
#include "parallel/quantization/quantize_kernels.hpp"

namespace mpzero::parallel {
namespace {

constexpr int64_t kLargestBlock = 256;
// Blocks per thread task.
constexpr int64_t kGrain = 64;
// Adding and subtracting 1.5 x 2^23 rounds a number below 2^22 to the nearest integer.
constexpr float kRoundsToWhole = 12582912.0F;

// Scale of a block and its inverse. Both are 0 for a block of zeros; NaN and 0 for a block with non-finite numbers.
// `top`: the bits of the block's largest magnitude. NaN compares greater than all numbers.
struct Scale {
  float scale;
  float inverse;
};
inline Scale scale_of(uint32_t top, int largest_code) {
  if (top < std::bit_cast<uint32_t>(kSmallestMaximum)) return {0.0F, 0.0F};
  if (top >= 0x7f800000U) return {std::numeric_limits<float>::quiet_NaN(), 0.0F};
  const auto levels = static_cast<float>(largest_code);
  const float largest = std::bit_cast<float>(top);
  return {largest / levels, levels / largest};
}

// Packs the integers of a block.
inline void write_codes(const int32_t* codes, int64_t count, int bits, int8_t* out) {
  if (bits == 8) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int8_t>(codes[i]);
  } else {
    for (int64_t i = 0; i < count / 2; ++i) {
      out[i] = static_cast<int8_t>((codes[2 * i] & 15) | ((codes[2 * i + 1] & 15) << 4));
    }
  }
}

inline void read_codes(const int8_t* in, int64_t count, int bits, float* codes) {
  if (bits == 8) {
    for (int64_t i = 0; i < count; ++i) codes[i] = in[i];
  } else {
    for (int64_t i = 0; i < count / 2; ++i) {
      codes[2 * i] = static_cast<float>(static_cast<int8_t>(static_cast<uint8_t>(in[i]) << 4U) >> 4);
      codes[2 * i + 1] = static_cast<float>(in[i] >> 4);
    }
  }
}

// Loads the numbers of a block with `load` and returns the bits of the largest magnitude.
template <typename Load>
__attribute__((always_inline)) inline uint32_t load_block(float* x, int64_t count, const Load& load) {
  uint32_t top = 0;
  for (int64_t i = 0; i < count; ++i) {
    x[i] = load(i);
    top = std::max(top, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffU);
  }
  return top;
}

// Fuses products only explicitly (-ffp-contract=off), so that every CPU and GPU produces the same bits.
template <typename Value, typename Residual>
__attribute__((always_inline)) inline void with_residual(const QuantizedSpans& s, int64_t block, RoundingKey key,
                                                         uint32_t first) {
  const int64_t begin = block * s.format.block;
  const int64_t count = std::min(s.format.block, s.count - begin);
  const auto* const values = static_cast<const Value*>(s.values) + begin;
  auto* const residual = static_cast<Residual*>(s.residual) + begin;
  const int32_t largest = s.format.largest_code;
  float x[kLargestBlock];
  int32_t codes[kLargestBlock];
  const uint32_t top = load_block(x, count, [&](int64_t i) { return to_float(values[i]) + to_float(residual[i]); });
  const auto [scale, inverse] = scale_of(top, largest);
  s.scales[block] = scale;
  if (inverse == 0.0F) {
    std::fill_n(codes, count, 0);
    for (int64_t i = 0; i < count; ++i) residual[i] = round_to<Residual>(scale == 0.0F ? x[i] : 0.0F);
  } else {
    const uint32_t offset = first + static_cast<uint32_t>(begin);
    for (int64_t i = 0; i < count; ++i) {
      const float t = x[i] * inverse + random_fraction(offset + static_cast<uint32_t>(i), key);
      auto code = static_cast<int32_t>(t);
      code -= t < static_cast<float>(code) ? 1 : 0;
      code = std::clamp(code, -largest, largest);
      codes[i] = code;
      residual[i] = round_to<Residual>(__builtin_fmaf(-static_cast<float>(code), scale, x[i]));
    }
  }
  write_codes(codes, count, s.format.bits, s.codes + begin * s.format.bits / 8);
}

template <typename Wanted, typename Current>
__attribute__((always_inline)) inline void difference(const QuantizedSpans& s, int64_t block) {
  const int64_t begin = block * s.format.block;
  const int64_t count = std::min(s.format.block, s.count - begin);
  const auto* const wanted = static_cast<const Wanted*>(s.values) + begin;
  const auto* const current = static_cast<const Current*>(s.residual) + begin;
  float x[kLargestBlock];
  int32_t codes[kLargestBlock];
  const uint32_t top = load_block(x, count, [&](int64_t i) { return to_float(wanted[i]) - to_float(current[i]); });
  const auto [scale, inverse] = scale_of(top, s.format.largest_code);
  s.scales[block] = scale;
  if (inverse == 0.0F) {
    std::fill_n(codes, count, 0);
  } else {
    // |x * inverse| exceeds the largest code by less than one half.
    for (int64_t i = 0; i < count; ++i) {
      codes[i] = static_cast<int32_t>((x[i] * inverse + kRoundsToWhole) - kRoundsToWhole);
    }
  }
  write_codes(codes, count, s.format.bits, s.codes + begin * s.format.bits / 8);
}

template <typename Own, typename Sum>
__attribute__((always_inline)) inline void sum_block(const SummedSpans& s, int64_t block) {
  const int64_t begin = block * s.format.block;
  const int64_t count = std::min(s.format.block, s.count - begin);
  const auto* const own = static_cast<const Own*>(s.own) + begin;
  auto* const sum = static_cast<Sum*>(s.sum) + begin;
  float total[kLargestBlock] = {};
  float codes[kLargestBlock];
  for (int64_t row = 0; row < s.rows; ++row) {
    if (row == s.own_row) {
      for (int64_t i = 0; i < count; ++i) total[i] += to_float(own[i]);
      continue;
    }
    const int8_t* const message = s.codes + row * s.stride;
    float scale;
    std::memcpy(&scale, message + s.scales_offset + block * static_cast<int64_t>(sizeof(float)), sizeof(float));
    read_codes(message + begin * s.format.bits / 8, count, s.format.bits, codes);
    for (int64_t i = 0; i < count; ++i) total[i] = __builtin_fmaf(codes[i], scale, total[i]);
  }
  for (int64_t i = 0; i < count; ++i) sum[i] = round_to<Sum>(total[i]);
}

// The following functions are compiled for AVX2 and for baseline x86-64.
template <typename Value, typename Residual>
__attribute__((target("avx2,fma"))) void with_residual_avx2(const QuantizedSpans& s, int64_t block, RoundingKey key,
                                                            uint32_t first) {
  with_residual<Value, Residual>(s, block, key, first);
}
template <typename Value, typename Residual>
void with_residual_portable(const QuantizedSpans& s, int64_t block, RoundingKey key, uint32_t first) {
  with_residual<Value, Residual>(s, block, key, first);
}
template <typename Wanted, typename Current>
__attribute__((target("avx2,fma"))) void difference_avx2(const QuantizedSpans& s, int64_t block) {
  difference<Wanted, Current>(s, block);
}
template <typename Wanted, typename Current>
void difference_portable(const QuantizedSpans& s, int64_t block) {
  difference<Wanted, Current>(s, block);
}
template <typename Own, typename Sum>
__attribute__((target("avx2,fma"))) void sum_block_avx2(const SummedSpans& s, int64_t block) {
  sum_block<Own, Sum>(s, block);
}
template <typename Own, typename Sum>
void sum_block_portable(const SummedSpans& s, int64_t block) {
  sum_block<Own, Sum>(s, block);
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

template <typename Block>
void for_each_block(int64_t count, const BlockFormat& format, const Block& work) {
  at::parallel_for(0, format.blocks(count), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) work(block);
  });
}

}  // namespace

void quantize_with_residual_host(const QuantizedSpans& spans, RoundingKey key, uint32_t first) {
  with_types<Bf16Bits>(spans.values_are_bf16, spans.residual_is_bf16, [&]<typename T>(T) {
    const auto kernel = has_avx2() ? with_residual_avx2<typename T::First, typename T::Second>
                                   : with_residual_portable<typename T::First, typename T::Second>;
    for_each_block(spans.count, spans.format, [&](int64_t block) { kernel(spans, block, key, first); });
  });
}

void quantize_difference_host(const QuantizedSpans& spans) {
  with_types<Bf16Bits>(spans.values_are_bf16, spans.residual_is_bf16, [&]<typename T>(T) {
    const auto kernel = has_avx2() ? difference_avx2<typename T::First, typename T::Second>
                                   : difference_portable<typename T::First, typename T::Second>;
    for_each_block(spans.count, spans.format, [&](int64_t block) { kernel(spans, block); });
  });
}

void sum_messages_host(const SummedSpans& spans) {
  with_types<Bf16Bits>(spans.own_is_bf16, spans.sum_is_bf16, [&]<typename T>(T) {
    const auto kernel = has_avx2() ? sum_block_avx2<typename T::First, typename T::Second>
                                   : sum_block_portable<typename T::First, typename T::Second>;
    for_each_block(spans.count, spans.format, [&](int64_t block) { kernel(spans, block); });
  });
}

}  // namespace mpzero::parallel
