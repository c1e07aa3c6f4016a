#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace mpzero::io {

enum class WeightType : uint8_t { kFloat32, kBFloat16 };

inline int64_t bytes_of(WeightType type) { return type == WeightType::kFloat32 ? 4 : 2; }

// The bits of a bfloat16 are the upper half of an fp32.
inline float from_bfloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Converts to bfloat16, rounding to nearest, ties to even, like PyTorch.
inline uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>(bits >> 16 | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

// Converts to IEEE 754 binary16, rounding to nearest, ties to even.
inline uint16_t to_float16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000U;
  uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    magnitude = 0x7E00U;  // NaN
  } else if (magnitude >= 0x477FF000U) {
    magnitude = 0x7C00U;  // 65520 and above round to infinity
  } else if (magnitude < 0x38800000U) {
    magnitude = static_cast<uint32_t>(std::nearbyint(std::bit_cast<float>(magnitude) * 0x1p24F));  // subnormal
  } else {
    magnitude = (magnitude - (uint32_t{127 - 15} << 23) + 0xFFFU + (magnitude >> 13 & 1U)) >> 13;
  }
  return static_cast<uint16_t>(sign | magnitude);
}

// Converts from IEEE 754 binary16 exactly. Subnormals become normal fp32 numbers, and NaNs keep their payload.
inline float from_float16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;  // 2^-14 / 2^10 per unit of the mantissa
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

// The same conversions for arrays, vectorized. `out` is at least as long as `in`.
void from_bfloat16(std::span<const uint16_t> in, std::span<float> out);
void from_float16(std::span<const uint16_t> in, std::span<float> out);
void to_bfloat16(std::span<const float> in, std::span<uint16_t> out);
using Widening = void (*)(std::span<const uint16_t>, std::span<float>);  // from_bfloat16 or from_float16

// Reads 16-bit values in blocks that fit into the CPU cache, and converts them. `read` fills a buffer with the bytes at
// a position relative to the first value.
void read_16bit(std::span<float> out, Widening convert, const std::function<void(int64_t, std::span<std::byte>)>& read);

}  // namespace mpzero::io
