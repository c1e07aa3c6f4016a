// Oracle of NF4: the description in nf4.hpp in fp64, with torch's e4m3; tests/e2e/test_qlora.py has the paper's
// formulas.

#include <limits>

#include "parallel/quantization/weight_codes.hpp"
#include "tests/parallel/quantization/quantization_checks.hpp"
#include "tests/parallel/same_bits.hpp"

namespace mpzero::parallel {
namespace {

at::Tensor encoded(WeightCodes codes, const at::Tensor& values) {
  const at::Tensor message = at::zeros({code_bytes(codes, values.numel())}, at::kByte);
  encode_weights(codes, values, message);
  return message;
}

at::Tensor decoded_weights(WeightCodes codes, const at::Tensor& values) {
  const at::Tensor result = at::empty({values.numel()});
  decode_weights(codes, encoded(codes, values), result);
  return result;
}

}  // namespace

TEST_CASE("the codes of a range are the same in one message and in several") {
  const int64_t count = 4 * kCodedGroup;
  const at::Tensor values = mixed_values(count, 2);
  for (const WeightCodes codes : {WeightCodes::kNf4, WeightCodes::kInt8}) {
    const at::Tensor whole = decoded_weights(codes, values);
    const at::Tensor halves = at::cat({decoded_weights(codes, values.narrow(0, 0, count / 2)),
                                       decoded_weights(codes, values.narrow(0, count / 2, count / 2))});
    CHECK(same_bits(whole, halves));
  }
}

TEST_CASE("int8 weights have an error of at most half a step") {
  const at::Tensor values = mixed_values(2 * kCodedGroup, 3);
  const at::Tensor result = decoded_weights(WeightCodes::kInt8, values);
  const at::Tensor errors = (result - values).to(at::kDouble).abs();
  CHECK(at::all(errors <= 0.5001 * steps_of(values, kInt8) + kSmallestMaximum).item<bool>());
}

TEST_CASE("zeros stay zeros, and non-finite values are not read as numbers") {
  for (const WeightCodes codes : {WeightCodes::kNf4, WeightCodes::kInt8}) {
    at::Tensor values = at::zeros({kCodedGroup});
    CHECK(decoded_weights(codes, values).eq(0).all().item<bool>());
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      values[700] = bad;
      CHECK_FALSE(decoded_weights(codes, values)[700].isfinite().item<bool>());
    }
  }
}

TEST_CASE("NF4 takes 4.13 bits per weight, and int8 takes 8.13") {
  const int64_t count = 100 * kCodedGroup;
  CHECK(static_cast<double>(code_bytes(WeightCodes::kNf4, count)) * 8 / static_cast<double>(count) ==
        Approx(4.129).epsilon(1e-4));
  CHECK(static_cast<double>(code_bytes(WeightCodes::kInt8, count)) * 8 / static_cast<double>(count) == Approx(8.125));
}

}  // namespace mpzero::parallel
