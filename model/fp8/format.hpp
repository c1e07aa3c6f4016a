#pragma once

#include <c10/core/ScalarType.h>
#include <c10/macros/Macros.h>

#include <cstdint>

namespace mpzero::model::fp8 {

// FP8 formats (Micikevicius et al., 2022, arXiv:2209.05433). kE4m3 is torch.float8_e4m3fn (maximum 448, no infinities).
// kE5m2 is torch.float8_e5m2 (maximum 57344). The maxima of both formats are 1.75 times a power of two.
enum class Format : uint8_t { kE4m3, kE5m2 };

constexpr at::ScalarType scalar_type(Format format) {
  return format == Format::kE4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
}
// Returns the exponent of the format's maximum.
C10_HOST_DEVICE constexpr int largest_exponent(Format format) { return format == Format::kE4m3 ? 8 : 15; }
// Encoding that mpzero writes for NaN in both formats.
constexpr uint8_t kNan = 0x7f;

// Current scaling: a tensor, row or column whose maximum absolute value (amax) is `maximum` is multiplied by 2^k before
// the cast, with the largest k that does not overflow. Multiplication by a power of two is exact, so only the cast
// rounds, and the row and column forms of a tensor have the same FP8 data if their scales are equal.
struct Scale {
  uint32_t bits;          // fp32 factor 2^k
  uint32_t inverse_bits;  // fp32 dequantization scale 2^-k
};

// Returns the scale for `maximum`, the bits of an fp32 magnitude. The scale for 0 is 1. The scale for infinity and NaN
// is NaN, so that products become NaN and the tensor is never silently clamped. The exponent k of the scale 2^k is
// limited to [-126, 126].
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

// Returns x in FP8, rounded to nearest even and saturated at the format's maximum. Returns kNan for NaN.
uint8_t encode(Format format, float x);
// Returns the exact value of an FP8 number, which is also exact in bf16.
float decode(Format format, uint8_t code);

}  // namespace mpzero::model::fp8
