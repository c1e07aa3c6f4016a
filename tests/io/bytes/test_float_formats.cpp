#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "io/bytes/float_formats.hpp"
#include "tests/catch.hpp"

namespace mpzero::io {

TEST_CASE("every bfloat16 value round-trips through fp32") {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = from_bfloat16(half);
    if (std::isnan(value)) {
      CHECK(std::isnan(from_bfloat16(to_bfloat16(value))));
    } else if (to_bfloat16(value) != half) {
      FAIL(bits);
    }
  }
}

TEST_CASE("fp32 is rounded to the nearest bfloat16, ties to even") {
  const auto rounded = [](uint32_t bits) { return to_bfloat16(std::bit_cast<float>(bits)); };
  CHECK(rounded(0x3F807FFF) == 0x3F80);
  CHECK(rounded(0x3F808000) == 0x3F80);
  CHECK(rounded(0x3F808001) == 0x3F81);
  CHECK(rounded(0x3F818000) == 0x3F82);
  CHECK(to_bfloat16(std::numeric_limits<float>::max()) == 0x7F80);
  // A NaN whose payload is in the lower half only.
  CHECK(std::isnan(from_bfloat16(rounded(0x7F800001))));
}

// Oracle: sign, exponent and mantissa by std::ldexp.
TEST_CASE("every binary16 value is exact in fp32") {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 0x1F);
    const auto mantissa = static_cast<float>(bits & 0x3FF);
    float expected = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 0x1F) expected = std::numeric_limits<float>::infinity();
    if ((bits & 0x8000) != 0) expected = -expected;
    const float value = from_float16(static_cast<uint16_t>(bits));
    const bool is_nan = exponent == 0x1F && mantissa != 0;
    const bool same = is_nan ? std::isnan(value) : std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(expected);
    if (!same) FAIL(bits);
  }
}

// Oracle: neighbors of the same sign and the exact middle between them.
TEST_CASE("fp32 is rounded to the nearest binary16, ties to even") {
  constexpr uint16_t kInfinity = 0x7C00;
  for (uint16_t half = 0; half < kInfinity; ++half) {
    const auto next = static_cast<uint16_t>(half + 1);
    const float low = from_float16(half);
    const float high = next == kInfinity ? 65536.0F : from_float16(next);
    const float middle = (low + high) / 2;
    const bool right = to_float16(low) == half && to_float16(std::nextafter(middle, low)) == half &&
                       to_float16(std::nextafter(middle, high)) == next &&
                       to_float16(middle) == (half % 2 == 0 ? half : next) && to_float16(-low) == (half | 0x8000) &&
                       to_float16(-high) == (next | 0x8000);
    if (!right) FAIL(half);
  }
  CHECK(to_float16(std::numeric_limits<float>::infinity()) == kInfinity);
  CHECK(std::isnan(from_float16(to_float16(std::bit_cast<float>(0x7F800001)))));
}

// Oracle: the functions for one value.
TEST_CASE("arrays are converted like single values, whatever their length") {
  for (const size_t length : {size_t{0}, size_t{1}, size_t{31}, size_t{65536}}) {
    std::vector<uint16_t> bits(length), rounded(length);
    std::iota(bits.begin(), bits.end(), uint16_t{});
    std::vector<float> values(length);
    from_float16(bits, values);
    for (size_t i = 0; i < length; ++i) {
      if (std::bit_cast<uint32_t>(values[i]) != std::bit_cast<uint32_t>(from_float16(bits[i]))) FAIL(bits[i]);
    }
    to_bfloat16(values, rounded);
    for (size_t i = 0; i < length; ++i) {
      if (rounded[i] != to_bfloat16(values[i])) FAIL(bits[i]);
    }
    from_bfloat16(bits, values);
    for (size_t i = 0; i < length; ++i) {
      if (std::bit_cast<uint32_t>(values[i]) != std::bit_cast<uint32_t>(from_bfloat16(bits[i]))) FAIL(bits[i]);
    }
  }
}

}  // namespace mpzero::io
