// Oracle: messages decoded in fp64 by their description (decoded()), and the definition of each operation.

#include <limits>

#include "parallel/quantization/quantize.hpp"
#include "tests/parallel/quantization/quantization_checks.hpp"

namespace mpzero::parallel {
namespace {

constexpr BlockFormat kFormats[] = {kInt8, kInt4};
constexpr int64_t kCounts[] = {64, 256, 320, 4096 + 192};

double rounding_of(at::ScalarType type) { return type == at::kFloat ? 1e-6 : 1.0 / 256; }

}  // namespace

TEST_CASE("a message plus the new residual equals the values plus the old residual") {
  for (const BlockFormat& format : kFormats) {
    for (const int64_t count : kCounts) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        for (const at::ScalarType kept : {at::kFloat, at::kBFloat16}) {
          INFO(format.bits << " bits, " << count << " of " << c10::toString(type) << ", kept in "
                           << c10::toString(kept));
          const at::Tensor values = mixed_values(count, 1).to(type);
          const at::Tensor residual = (mixed_values(count, 2) * 0.01).to(kept);
          const at::Tensor addend = values.to(at::kDouble) + residual.to(at::kDouble);
          const at::Tensor message = empty_message(count, format, at::kCPU);
          quantize_with_residual(values, residual, message, format, rounding_key(1, 2, 3, 4), 0);
          const at::Tensor sent = decoded(message, count, format);
          const at::Tensor steps = steps_of(addend, format);
          // One of the two nearest codes: less than a step away, but for the rounding of the residual itself.
          REQUIRE(((sent - addend).abs() <= steps * (1 + 1e-5) + 1e-30).all().item<bool>());
          const at::Tensor lost = (sent + residual.to(at::kDouble) - addend).abs();
          // Elements much smaller than their step are exact to the step's rounding only.
          REQUIRE((lost <= rounding_of(kept) * steps + 1e-6 * addend.abs() + 1e-30).all().item<bool>());
        }
      }
    }
  }
}

TEST_CASE("stochastic rounding is unbiased, and differs between steps, units and senders") {
  const int64_t count = 256;
  at::Tensor values = at::linspace(-1, 1, count);
  for (const BlockFormat& format : kFormats) {
    at::Tensor sum = at::zeros({count}, at::kDouble);
    constexpr int kRounds = 4000;
    at::Tensor first;
    for (int round = 0; round < kRounds; ++round) {
      const at::Tensor residual = at::zeros({count});
      const at::Tensor message = empty_message(count, format, at::kCPU);
      // Each of the four parts of the key moves the numbers.
      const auto part = [&](int which) { return static_cast<uint64_t>(round % 4 == which ? round : 0); };
      quantize_with_residual(values, residual, message, format, rounding_key(part(0), part(1), part(2), part(3)), 0);
      const at::Tensor sent = decoded(message, count, format);
      if (round == 0) first = sent;
      if (round == 1 || round == 2 || round == 3) REQUIRE(!sent.equal(first));
      sum += sent;
    }
    // A step times at most half a standard deviation each, over the root of the number of rounds, times 5. (Round 0 of
    // each part is the same key, which 4 of 4000 rounds do not make visible.)
    const double step = 1.0 / format.largest_code;
    const double tolerance = 5 * 0.5 * step / std::sqrt(kRounds) + 4 * step / kRounds;
    CHECK((sum / kRounds - values.to(at::kDouble)).abs().max().item<double>() <= tolerance);
  }
}

TEST_CASE("the same key gives the same bits, from any position") {
  const int64_t count = 1024;
  const at::Tensor values = mixed_values(count, 5);
  const RoundingKey key = rounding_key(7, 8, 9, 10);
  for (const BlockFormat& format : kFormats) {
    const auto quantized = [&](int64_t begin) {
      const at::Tensor residual = at::zeros({count - begin});
      const at::Tensor message = empty_message(count - begin, format, at::kCPU);
      quantize_with_residual(values.narrow(0, begin, count - begin), residual, message, format, key, begin);
      return decoded(message, count - begin, format);
    };
    REQUIRE(quantized(0).equal(quantized(0)));
    REQUIRE(quantized(256).equal(quantized(0).narrow(0, 256, count - 256)));
  }
}

TEST_CASE("a difference is rounded to the nearest code, and adding it brings the copy closer") {
  for (const int64_t count : kCounts) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      INFO(count << " of " << c10::toString(type));
      const at::Tensor wanted = mixed_values(count, 3).to(type);
      const at::Tensor copy = (wanted + mixed_values(count, 4) * 1e-3).to(type);
      const at::Tensor difference = wanted.to(at::kDouble) - copy.to(at::kDouble);
      const at::Tensor message = empty_message(count, kInt8, at::kCPU);
      quantize_difference(wanted, copy, message, kInt8);
      const at::Tensor sent = decoded(message, count, kInt8);
      const at::Tensor steps = steps_of(difference, kInt8);
      REQUIRE(((sent - difference).abs() <= steps * (0.5 + 1e-4) + 1e-30).all().item<bool>());
      const at::Tensor expected = copy.to(at::kDouble) + sent;
      add_message(message, copy, kInt8);
      REQUIRE(((copy.to(at::kDouble) - expected).abs() <= rounding_of(type) * expected.abs() + 1e-6 * steps)
                  .all()
                  .item<bool>());
    }
  }
}

TEST_CASE("messages and this rank's own values are added in order") {
  constexpr int64_t kRows = 3;
  for (const BlockFormat& format : kFormats) {
    for (const int64_t count : kCounts) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        for (int64_t own_row = 0; own_row < kRows; ++own_row) {
          const at::Tensor messages = empty_message(count, format, at::kCPU, kRows);
          const at::Tensor own = mixed_values(count, 11).to(type);
          at::Tensor expected = at::zeros({count}, at::kFloat);
          for (int64_t row = 0; row < kRows; ++row) {
            if (row == own_row) {
              // What must not be read.
              messages[row].fill_(255);
              expected += own.to(at::kFloat);
              continue;
            }
            const at::Tensor residual = at::zeros({count});
            quantize_with_residual(mixed_values(count, static_cast<uint64_t>(20 + row)), residual, messages[row],
                                   format, {}, 0);
            expected = (expected.to(at::kDouble) + decoded(messages[row], count, format)).to(at::kFloat);
          }
          const at::Tensor sum = at::zeros({count}, at::kFloat);
          sum_messages(messages, own_row, own, sum, format);
          REQUIRE(sum.equal(expected));
          const at::Tensor in_place = own.clone();
          sum_messages(messages, own_row, in_place, in_place, format);
          REQUIRE(in_place.equal(expected.to(type)));
        }
      }
    }
  }
}

TEST_CASE("non-finite values arrive as NaN, only in their block") {
  for (const BlockFormat& format : kFormats) {
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      const int64_t count = 3 * format.block;
      const at::Tensor values = at::ones({count});
      values[format.block + 5] = bad;
      const at::Tensor residual = at::zeros({count});
      const at::Tensor message = empty_message(count, format, at::kCPU);
      quantize_with_residual(values, residual, message, format, {}, 0);
      const at::Tensor sum = at::zeros({count});
      add_message(message, sum, format);
      CHECK(sum.narrow(0, format.block, format.block).isnan().all().item<bool>());
      CHECK(sum.narrow(0, 0, format.block).equal(at::ones({format.block})));
      CHECK(sum.narrow(0, 2 * format.block, format.block).equal(at::ones({format.block})));
    }
  }
}

TEST_CASE("sizes and dtypes that do not match are refused") {
  const at::Tensor values = at::zeros({128});
  CHECK_THROWS(quantize_difference(values, at::zeros({64}), empty_message(128, kInt8, at::kCPU), kInt8));
  CHECK_THROWS(quantize_difference(values, values, empty_message(64, kInt8, at::kCPU), kInt8));
  CHECK_THROWS(quantize_difference(values, values.to(at::kDouble), empty_message(128, kInt8, at::kCPU), kInt8));
  CHECK_THROWS(quantize_difference(at::zeros({100}), at::zeros({100}), empty_message(100, kInt8, at::kCPU), kInt8));
}

TEST_CASE("a message takes few more bits per element than its format") {
  CHECK(kInt8.message_bytes(1 << 20) == (1 << 20) + (1 << 20) / 256 * 4);
  CHECK(kInt4.message_bytes(1 << 20) == (1 << 19) + (1 << 20) / 128 * 4);
  CHECK(kInt8.message_bytes(64) == 80);
  CHECK(kInt4.message_bytes(64) == 48);
}

}  // namespace mpzero::parallel
