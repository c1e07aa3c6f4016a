// What all CPUs must agree on: bits that were computed once, by hand.

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "parallel/quantization/quantize_kernels.hpp"
#include "tests/parallel/quantization/quantization_checks.hpp"

namespace mpzero::parallel {

TEST_CASE("codes, scale and residual of a small block match hand-computed values") {
  // Whole multiples of the scale need no random number: any of them, floored, gives them.
  const at::Tensor values = at::zeros({64});
  values[0] = 127;
  values[1] = -127;
  values[2] = 3;
  values[3] = -1;
  const at::Tensor residual = at::zeros({64});
  residual[4] = 2;
  const at::Tensor message = empty_message(64, kInt8, at::kCPU);
  auto* const bytes = reinterpret_cast<int8_t*>(message.data_ptr());
  quantize_with_residual_host({.values = values.const_data_ptr(),
                               .values_are_bf16 = false,
                               .residual = residual.data_ptr(),
                               .residual_is_bf16 = false,
                               .codes = bytes,
                               .scales = reinterpret_cast<float*>(bytes + 64),
                               .count = 64,
                               .format = kInt8},
                              {}, 0);
  CHECK(bytes[0] == 127);
  CHECK(bytes[1] == -127);
  CHECK(bytes[2] == 3);
  CHECK(bytes[3] == -1);
  CHECK(bytes[4] == 2);
  CHECK(bytes[5] == 0);
  float scale = 0;
  std::memcpy(&scale, bytes + 64, sizeof scale);
  CHECK(scale == 1.0F);
  CHECK(residual.equal(at::zeros({64})));
}

TEST_CASE("in a difference, half a scale is rounded to the nearest even code") {
  const at::Tensor wanted = at::zeros({64});
  wanted[0] = 127;
  wanted[1] = 0.5;
  wanted[2] = 1.5;
  wanted[3] = -2.5;
  const at::Tensor current = at::zeros({64});
  const at::Tensor message = empty_message(64, kInt8, at::kCPU);
  auto* const bytes = reinterpret_cast<int8_t*>(message.data_ptr());
  quantize_difference_host({.values = wanted.const_data_ptr(),
                            .values_are_bf16 = false,
                            .residual = current.data_ptr(),
                            .residual_is_bf16 = false,
                            .codes = bytes,
                            .scales = reinterpret_cast<float*>(bytes + 64),
                            .count = 64,
                            .format = kInt8});
  CHECK(bytes[0] == 127);
  CHECK(bytes[1] == 0);
  CHECK(bytes[2] == 2);
  CHECK(bytes[3] == -2);
}

TEST_CASE("a random fraction is in [0, 1) and depends on each bit of its key and position") {
  const RoundingKey key = rounding_key(1, 2, 3, 4);
  const float one = random_fraction(17, key);
  CHECK(one >= 0.0F);
  CHECK(one < 1.0F);
  for (uint32_t bit = 0; bit < 32; ++bit) {
    CHECK(random_fraction(17U ^ (1U << bit), key) != one);
    CHECK(random_fraction(17, {key.first ^ (1U << bit), key.second}) != one);
    CHECK(random_fraction(17, {key.first, key.second ^ (1U << bit)}) != one);
  }
}

// Computed once by another program from the papers' constants; the first number of SplitMix64 from 0 is that of its
// authors' own code.
TEST_CASE("keys and random fractions have known values") {
  CHECK(rounding_key(1, 2, 3, 4).first == 0xcbcc01feU);
  CHECK(rounding_key(1, 2, 3, 4).second == 0x336c3255U);
  CHECK(rounding_key(42, 1000, 17, 3).first == 0xbf7a8fe3U);
  CHECK(rounding_key(42, 1000, 17, 3).second == 0x32424f2dU);
  const auto bits = [](uint32_t element, RoundingKey key) {
    return std::lround(random_fraction(element, key) * 0x1p24F);
  };
  CHECK(bits(0, rounding_key(1, 2, 3, 4)) == 1813626);
  CHECK(bits(17, rounding_key(1, 2, 3, 4)) == 4401208);
  CHECK(bits(123456789, rounding_key(1, 2, 3, 4)) == 1520439);
  CHECK(bits(17, rounding_key(42, 1000, 17, 3)) == 11634948);
}

TEST_CASE("random fractions are uniform, and independent over seeds, steps, units, senders and positions") {
  constexpr int64_t kCount = 1 << 14;
  const auto fractions = [](const std::array<uint64_t, 4>& parts, uint32_t first) {
    const at::Tensor all = at::empty({kCount}, at::kDouble);
    const RoundingKey key = rounding_key(parts[0], parts[1], parts[2], parts[3]);
    for (int64_t i = 0; i < kCount; ++i) {
      all[i] = static_cast<double>(random_fraction(first + static_cast<uint32_t>(i), key));
    }
    return all;
  };
  const std::array<uint64_t, 4> start{1, 100, 5, 0};
  std::vector<at::Tensor> all{fractions(start, 0)};
  for (size_t part = 0; part < start.size(); ++part) {
    for (const uint64_t more : {1, 2}) {
      std::array<uint64_t, 4> other = start;
      other[part] += more;
      all.push_back(fractions(other, 0));
      // A part of the key that only moved positions would give the neighbours' numbers.
      all.push_back(fractions(other, 1));
    }
  }
  for (const uint32_t moved : {1U, 2U, 64U, 256U}) all.push_back(fractions(start, moved));
  // 5 standard deviations: of a mean 1 / sqrt(12 n), of a variance 1 / sqrt(180 n), of a correlation 1 / sqrt(n).
  const double root = std::sqrt(static_cast<double>(kCount));
  std::vector<at::Tensor> centered;
  for (const at::Tensor& some : all) {
    CHECK(std::abs(some.mean().item<double>() - 0.5) < 5 / (std::sqrt(12.0) * root));
    CHECK(std::abs((some - 0.5).square().mean().item<double>() - 1.0 / 12) < 5 / (std::sqrt(180.0) * root));
    centered.push_back((some - 0.5) * std::sqrt(12.0));
  }
  const at::Tensor rows = at::stack(centered);
  const at::Tensor correlations = rows.mm(rows.t()) / kCount;
  correlations.fill_diagonal_(0);
  CHECK(correlations.abs().max().item<double>() < 5 / root);
}

}  // namespace mpzero::parallel
