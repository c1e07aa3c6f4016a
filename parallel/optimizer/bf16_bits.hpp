#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace mpzero::parallel {

// Bits of a bf16 number: the upper 16 bits of the fp32 number with the same value.
using Bf16Bits = uint16_t;
inline constexpr Bf16Bits kBf16Nan = 0x7FC0;

inline float to_float(float value) { return value; }
inline float to_float(Bf16Bits bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Rounds to the nearest bf16 number, ties to even. NaN is handled separately, because rounding the bits of a NaN could
// produce infinity.
template <typename T>
inline T round_to(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    const auto bits = std::bit_cast<uint32_t>(value);
    const auto rounded = static_cast<Bf16Bits>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
    return value != value ? kBf16Nan : rounded;
  }
}

// Rounds stochastically to bf16: away from zero with probability (dropped 16 bits) / 2^16. Requires `random` < 2^16.
template <typename T>
inline T round_randomly_to(float value, uint32_t random) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    const auto bits = std::bit_cast<uint32_t>(value);
    const bool finite = (bits & 0x7F800000U) != 0x7F800000U;
    return finite ? static_cast<Bf16Bits>((bits + random) >> 16) : round_to<Bf16Bits>(value);
  }
}

}  // namespace mpzero::parallel
