#pragma once

#include <c10/core/ScalarType.h>
#include <c10/macros/Macros.h>

#include <cstdint>

namespace mpzero::model::fp8 {

// FP8 formats (Micikevicius et al., 2022, arXiv:2209.05433). The largest number of both is 1.75 times a power of two.
// kE4m3 is torch's float8_e4m3fn (largest 448, no infinities), kE5m2 is float8_e5m2 (largest 57344).
enum class Format : uint8_t { kE4m3, kE5m2 };

constexpr at::ScalarType scalar_type(Format format) {
  return format == Format::kE4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
}
// The exponent of the largest number.
C10_HOST_DEVICE constexpr int largest_exponent(Format format) { return format == Format::kE4m3 ? 8 : 15; }
// The bits that mpzero writes for NaN.
constexpr uint8_t kNan = 0x7f;

// Current scaling: a tensor, a row or a column whose largest magnitude is `maximum` is multiplied by 2^k before it is
// cast, with the largest k for which no number exceeds the format's largest one. Powers of two scale without rounding:
// the cast rounds once, and a tensor's row and column forms have the same FP8 data if their scales are equal.
struct Scale {
  uint32_t bits;          // of the fp32 factor 2^k
  uint32_t inverse_bits;  // of 2^-k, the dequantization scale
};

// `maximum`: the bits of an fp32 magnitude. The scale of 0 is 1. For infinity and NaN both factors are NaN, so the
// products are NaN, too: such a tensor is never silently clamped. k is limited to [-126, 126].
C10_HOST_DEVICE inline Scale scale_for(Format format, uint32_t maximum) {
  constexpr uint32_t kInfinity = 0x7f800000u, kNanBits = 0x7fc00000u, kLargestMantissa = 0x600000u;
  constexpr int kBias = 127, kMantissaBits = 23, kLargestPower = 126;
  if (maximum >= kInfinity) return {kNanBits, kNanBits};
  int power = 0;
  if (maximum > 0) {
    const int exponent = static_cast<int>(maximum >> kMantissaBits) - kBias;
    const bool above = (maximum & 0x7fffffu) > kLargestMantissa;
    power = largest_exponent(format) - exponent - (above ? 1 : 0);
    if (power > kLargestPower) power = kLargestPower;
  }
  return {static_cast<uint32_t>(kBias + power) << kMantissaBits, static_cast<uint32_t>(kBias - power) << kMantissaBits};
}

// Rounds to nearest, ties to even. Saturates at the largest number; NaN becomes kNan.
uint8_t encode(Format format, float x);
// Exact, also in bf16.
float decode(Format format, uint8_t code);

}  // namespace mpzero::model::fp8
