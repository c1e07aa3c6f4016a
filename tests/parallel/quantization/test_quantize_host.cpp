// What all CPUs must agree on: bits that were computed once, by hand.

#include <cmath>
#include <cstring>

#include "parallel/quantization/quantize_kernels.hpp"
#include "tests/parallel/quantization/quantization_checks.hpp"

namespace mpzero::parallel {

TEST_CASE("codes, scale and residual of a small block, by hand") {
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

TEST_CASE("halves of a scale go to the nearest even code in a difference") {
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

}  // namespace mpzero::parallel
