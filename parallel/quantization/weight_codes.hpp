#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

// Frozen weights, quantized to 8 or 4 bits. A message is uint8 [code_bytes(codes, n)], aligned to 16 bytes, with n
// values, a multiple of kCodedGroup. A block or group with a non-finite number is dequantized to non-finite numbers.
namespace mpzero::parallel {

enum class WeightCodes : uint8_t {
  kNone,
  kInt8,  // a message in kInt8: 8.125 bits per value
  kNf4,   // NF4 with double quantization: 4.129 bits per value, see nf4.hpp
};

// Splitting values at multiples of this does not change how they are quantized.
inline constexpr int64_t kCodedGroup = 16384;

int64_t code_bytes(WeightCodes codes, int64_t count);
// message <- values (fp32 [n]), both in host memory.
void encode_weights(WeightCodes codes, const at::Tensor& values, const at::Tensor& message);
// values (fp32 or bf16 [n]) <- the dequantized message, on the CPU or, queued on the current stream, on a GPU, with the
// same bits.
void decode_weights(WeightCodes codes, const at::Tensor& message, const at::Tensor& values);

}  // namespace mpzero::parallel
