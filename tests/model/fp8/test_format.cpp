// FP8 codes against the definition of the formats (arXiv:2209.05433, table 1) and against torch's own types.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "model/fp8/format.hpp"
#include "tests/catch.hpp"

namespace mpzero::model::fp8 {
namespace {

constexpr Format kFormats[] = {Format::kE4m3, Format::kE5m2};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float largest(Format format) { return format == Format::kE4m3 ? 448.0F : 57344.0F; }

// The number of a code by the formula of the paper: (-1)^s 2^(e - bias) (1 + m / 2^M), subnormal for e = 0.
double by_formula(Format format, int code) {
  const int mantissa_bits = format == Format::kE4m3 ? 3 : 2, bias = format == Format::kE4m3 ? 7 : 15;
  const int sign = code >> 7, exponent = (code & 0x7f) >> mantissa_bits, mantissa = code % (1 << mantissa_bits);
  const double fraction = mantissa * std::pow(2.0, -mantissa_bits);
  const double size =
      exponent == 0 ? fraction * std::pow(2.0, 1 - bias) : (1 + fraction) * std::pow(2.0, exponent - bias);
  return sign == 0 ? size : -size;
}

bool is_finite_code(Format format, int code) {
  return format == Format::kE4m3 ? (code & 0x7f) != 0x7f : (code & 0x7f) < 0x7c;
}

// The nearest finite code by search; of two equally near ones the even one.
int nearest(Format format, double x) {
  int best = -1;
  double distance = 0;
  for (int code = std::signbit(x) ? 128 : 0; code < (std::signbit(x) ? 256 : 128); ++code) {
    if (!is_finite_code(format, code)) continue;
    const double d = std::fabs(by_formula(format, code) - x);
    if (best < 0 || d < distance || (d == distance && code % 2 == 0)) {
      best = code;
      distance = d;
    }
  }
  return best;
}

}  // namespace

TEST_CASE("all 256 codes have the values of the definition") {
  for (const Format format : kFormats) {
    for (int code = 0; code < 256; ++code) {
      INFO("format " << static_cast<int>(format) << " code " << code);
      const float number = decode(format, static_cast<uint8_t>(code));
      if (is_finite_code(format, code)) {
        CHECK(number == by_formula(format, code));
        CHECK(std::signbit(number) == (code >= 128));
        CHECK(int{encode(format, number)} == code);
      } else if (format == Format::kE5m2 && (code & 0x7f) == 0x7c) {
        CHECK(number == (code < 128 ? kInfinity : -kInfinity));
      } else {
        CHECK(std::isnan(number));
      }
    }
  }
  CHECK(decode(Format::kE4m3, 0x7e) == 448.0F);
  CHECK(decode(Format::kE4m3, 0x01) == 0x1p-9F);
  CHECK(decode(Format::kE5m2, 0x7b) == 57344.0F);
  CHECK(decode(Format::kE5m2, 0x01) == 0x1p-16F);
}

TEST_CASE("encode rounds to nearest, ties to even, and saturates") {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> mantissa(1.0F, 2.0F);
  std::uniform_int_distribution<int> exponent(-22, 17);
  for (const Format format : kFormats) {
    std::vector<float> numbers{0.0F,     -0.0F,     std::numeric_limits<float>::denorm_min(), 0x1p-10F, 0x1.8p-10F,
                               0x1p-17F, 0x1.8p-17F};
    for (int i = 0; i < 20000; ++i) {
      const float x = std::ldexp(mantissa(random), exponent(random));
      numbers.push_back(i % 2 == 0 ? x : -x);
    }
    // Halfway between neighbours, and next to it on both sides.
    for (int code = 0; code < 127 && is_finite_code(format, code + 1); ++code) {
      const auto middle = static_cast<float>((by_formula(format, code) + by_formula(format, code + 1)) / 2);
      numbers.insert(numbers.end(), {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, kInfinity), -middle});
    }
    for (const float x : numbers) {
      INFO("format " << static_cast<int>(format) << " number " << x);
      CHECK(int{encode(format, x)} == nearest(format, x));
    }
    for (const float x : {largest(format) * 1.01F, 1e30F, kInfinity}) {
      CHECK(decode(format, encode(format, x)) == largest(format));
      CHECK(decode(format, encode(format, -x)) == -largest(format));
    }
    CHECK(encode(format, std::numeric_limits<float>::quiet_NaN()) == kNan);
  }
}

TEST_CASE("codes match torch's types within their range") {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> mantissa(-2.0F, 2.0F);
  std::uniform_int_distribution<int> exponent(-20, 7);
  std::vector<float> numbers(50000);
  for (float& x : numbers) x = std::ldexp(mantissa(random), exponent(random));
  const at::Tensor x = at::from_blob(numbers.data(), {static_cast<int64_t>(numbers.size())}, at::kFloat);
  for (const Format format : kFormats) {
    const at::Tensor codes = x.to(scalar_type(format));
    const at::Tensor values = codes.to(at::kFloat);
    const auto* expected = static_cast<const uint8_t*>(codes.const_data_ptr());
    int64_t different = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const uint8_t code = encode(format, numbers[i]);
      if (code != expected[i] || decode(format, code) != values.const_data_ptr<float>()[i]) ++different;
    }
    CHECK(different == 0);
  }
}

TEST_CASE("a scale is the largest power of two without overflow") {
  for (const Format format : kFormats) {
    for (const float maximum :
         {1.0F, 1.75F, std::nextafter(1.75F, 2.0F), 3.5F, 448.0F, 449.0F, 57344.0F, 1e-20F, 6e20F}) {
      INFO("format " << static_cast<int>(format) << " maximum " << maximum);
      const Scale scale = scale_for(format, std::bit_cast<uint32_t>(maximum));
      const auto factor = std::bit_cast<float>(scale.bits), inverse = std::bit_cast<float>(scale.inverse_bits);
      CHECK(factor * inverse == 1.0F);
      CHECK(maximum * factor <= largest(format));
      CHECK(maximum * factor * 2 > largest(format));
      int power = 0;
      CHECK(std::frexp(factor, &power) == 0.5F);
    }
    const Scale zero = scale_for(format, 0);
    CHECK(std::bit_cast<float>(zero.bits) == 1.0F);
    const Scale tiny = scale_for(format, 1);
    CHECK(std::bit_cast<float>(tiny.bits) == 0x1p126F);
    CHECK(std::bit_cast<float>(tiny.inverse_bits) == 0x1p-126F);
    const float most = std::numeric_limits<float>::max();
    const Scale huge = scale_for(format, std::bit_cast<uint32_t>(most));
    CHECK(most * std::bit_cast<float>(huge.bits) <= largest(format));
    for (const float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      const Scale scale = scale_for(format, std::bit_cast<uint32_t>(bad));
      CHECK(std::isnan(std::bit_cast<float>(scale.bits)));
      CHECK(std::isnan(std::bit_cast<float>(scale.inverse_bits)));
    }
  }
}

}  // namespace mpzero::model::fp8
