// Oracle: the CPU's kernels, bit for bit; tests/parallel/quantization has their oracles.

#include <limits>

#include "parallel/quantization/nf4.hpp"
#include "parallel/quantization/weight_codes.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/parallel/quantization/quantization_checks.hpp"
#include "tests/parallel/same_bits.hpp"

namespace mpzero::parallel {
namespace {

// Longer than one pass of the grid, and odd lengths.
constexpr int64_t kCounts[] = {64, 192, 256, 4096 + 64, 3 * 1024 * 1024 + 320};

at::Tensor values_of(int64_t count, uint64_t seed, at::ScalarType type) {
  at::Tensor values = mixed_values(count, seed);
  if (count > 4000) {
    values[1030] = std::numeric_limits<float>::infinity();
    values[1400] = std::numeric_limits<float>::quiet_NaN();
  }
  return values.to(type);
}

}  // namespace

TEST_CASE("quantization with a residual on the GPU is bitwise equal to the CPU") {
  if (!has_gpu()) return;
  for (const BlockFormat& format : {kInt8, kInt4}) {
    for (const int64_t count : kCounts) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        for (const at::ScalarType kept : {at::kFloat, at::kBFloat16}) {
          INFO(format.bits << " bits, " << count << " of " << c10::toString(type) << ", residual "
                           << c10::toString(kept));
          const at::Tensor values = values_of(count, 1, type);
          const at::Tensor residual = (mixed_values(count, 2) * 0.01).to(kept);
          const at::Tensor residual_on_gpu = residual.cuda();
          const RoundingKey key = rounding_key(1, 2, 3, 4);
          const at::Tensor message = empty_message(count, format, at::kCPU);
          const at::Tensor message_on_gpu = empty_message(count, format, at::kCUDA);
          quantize_with_residual(values, residual, message, format, key, 12345);
          quantize_with_residual(values.cuda(), residual_on_gpu, message_on_gpu, format, key, 12345);
          REQUIRE(same_bits(message_on_gpu, message));
          REQUIRE(same_bits(residual_on_gpu, residual));
        }
      }
    }
  }
}

TEST_CASE("8-bit and 4-bit weights are dequantized on a GPU bitwise equal to the CPU") {
  if (!has_gpu()) return;
  for (const WeightCodes codes : {WeightCodes::kNf4, WeightCodes::kInt8}) {
    for (const int64_t groups : {1, 3, 700}) {
      const int64_t count = groups * kCodedGroup;
      at::Tensor values = mixed_values(count, 6);
      if (groups > 1) {
        values[kCodedGroup + 5] = std::numeric_limits<float>::quiet_NaN();
        // A scale is below 0 before it is clamped: see test_nf4_host.cpp.
        const at::Tensor group = values.narrow(0, 2 * kCodedGroup, kCodedGroup).fill_(1);
        group.narrow(0, kNf4Block, kNf4Block).fill_(3.9);
        group.narrow(0, 2 * kNf4Block, kNf4Block).fill_(0.001);
      }
      const at::Tensor message = at::zeros({code_bytes(codes, count)}, at::kByte);
      encode_weights(codes, values, message);
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        INFO(groups << " groups, " << c10::toString(type));
        const at::Tensor on_cpu = at::empty({count}, type),
                         on_gpu = at::empty({count}, on_cpu.options().device(at::kCUDA));
        decode_weights(codes, message, on_cpu);
        decode_weights(codes, message.cuda(), on_gpu);
        // The bits of a NaN may differ.
        const at::Tensor finite = on_cpu.isfinite();
        CHECK(finite.equal(on_gpu.isfinite().cpu()));
        CHECK(same_bits(on_gpu.cpu().masked_select(finite), on_cpu.masked_select(finite)));
      }
    }
  }
}

TEST_CASE("differences and their sums on the GPU are bitwise equal to the CPU") {
  if (!has_gpu()) return;
  for (const BlockFormat& format : {kInt8, kInt4}) {
    for (const int64_t count : kCounts) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const at::Tensor wanted = mixed_values(count, 3).to(type);
        const at::Tensor copy = (wanted + mixed_values(count, 4) * 1e-3).to(type);
        const at::Tensor copy_on_gpu = copy.cuda();
        const at::Tensor message = empty_message(count, format, at::kCPU);
        const at::Tensor message_on_gpu = empty_message(count, format, at::kCUDA);
        quantize_difference(wanted, copy, message, format);
        quantize_difference(wanted.cuda(), copy_on_gpu, message_on_gpu, format);
        REQUIRE(same_bits(message_on_gpu, message));
        add_message(message, copy, format);
        add_message(message_on_gpu, copy_on_gpu, format);
        REQUIRE(same_bits(copy_on_gpu, copy));
      }
    }
  }
}

TEST_CASE("sums of messages on the GPU are bitwise equal to the CPU") {
  if (!has_gpu()) return;
  constexpr int64_t kRows = 4;
  for (const BlockFormat& format : {kInt8, kInt4}) {
    for (const int64_t count : kCounts) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        for (const at::ScalarType sum_type : {at::kFloat, at::kBFloat16}) {
          const at::Tensor messages = empty_message(count, format, at::kCPU, kRows);
          for (int64_t row = 0; row < kRows; ++row) {
            const at::Tensor residual = at::zeros({count});
            quantize_with_residual(mixed_values(count, static_cast<uint64_t>(20 + row)), residual, messages[row],
                                   format, {}, 0);
          }
          const at::Tensor own = mixed_values(count, 11).to(type);
          const at::Tensor sum = at::zeros({count}, sum_type);
          const at::Tensor sum_on_gpu = sum.cuda();
          sum_messages(messages, 2, own, sum, format);
          sum_messages(messages.cuda(), 2, own.cuda(), sum_on_gpu, format);
          REQUIRE(same_bits(sum_on_gpu, sum));
        }
      }
    }
  }
}

}  // namespace mpzero::parallel
