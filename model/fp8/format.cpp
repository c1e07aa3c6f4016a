#include "model/fp8/format.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace mpzero::model::fp8 {
namespace {

constexpr uint8_t kSign = 0x80;

constexpr int mantissa_bits(Format format) { return format == Format::kE4m3 ? 3 : 2; }
// Returns the exponent of the smallest normal number.
constexpr int smallest_exponent(Format format) { return format == Format::kE4m3 ? -6 : -14; }
constexpr uint8_t largest_code(Format format) { return format == Format::kE4m3 ? 0x7e : 0x7b; }

}  // namespace

uint8_t encode(Format format, float x) {
  if (std::isnan(x)) return kNan;
  const auto sign = static_cast<uint8_t>(std::signbit(x) ? kSign : 0);
  const float magnitude = std::fabs(x);
  const float largest = std::ldexp(1.75F, largest_exponent(format));
  if (magnitude >= largest) return sign | largest_code(format);
  // The step between adjacent numbers depends on their power of two and is constant for all subnormal numbers.
  const int exponent =
      std::max(static_cast<int>(std::bit_cast<uint32_t>(magnitude) >> 23) - 127, smallest_exponent(format));
  const int step = exponent - mantissa_bits(format);
  // Scaling by a power of two is exact here, and nearbyint rounds to nearest even by default. Rounding up to the next
  // power of two carries into the exponent, because FP8 bits have the same order as their numbers.
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -step)));
  const int code = ((exponent - smallest_exponent(format)) << mantissa_bits(format)) + steps;
  return static_cast<uint8_t>(sign | std::min<int>(code, largest_code(format)));
}

float decode(Format format, uint8_t code) {
  const int magnitude = code & ~kSign;
  const float sign = (code & kSign) != 0 ? -1.0F : 1.0F;
  if (magnitude > largest_code(format)) {
    const bool infinite = format == Format::kE5m2 && magnitude == 0x7c;
    return infinite ? sign * std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  }
  const int bits = mantissa_bits(format), exponent = magnitude >> bits, mantissa = magnitude & ((1 << bits) - 1);
  const int hidden = exponent > 0 ? 1 << bits : 0;
  return sign * std::ldexp(static_cast<float>(hidden + mantissa),
                           std::max(exponent, 1) - 1 + smallest_exponent(format) - bits);
}

}  // namespace mpzero::model::fp8
