#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

// Formats of quantized frozen weights. A message of n values is uint8 [code_bytes(codes, n)], aligned to 16 bytes, with
// n a multiple of kCodedGroup. A block or group with a non-finite number is dequantized to non-finite numbers.
namespace mpzero::parallel {

enum class WeightCodes : uint8_t {
  kNone,
  kInt8,  // block format kInt8: 8.125 bits per value
  kNf4,   // NF4 with double quantization: 4.129 bits per value, see nf4.hpp
};

// The quantized values do not change if a tensor is split at multiples of this number of elements.
inline constexpr int64_t kCodedGroup = 16384;

int64_t code_bytes(WeightCodes codes, int64_t count);
// message <- values (fp32 [n]), both in host memory.
void encode_weights(WeightCodes codes, const at::Tensor& values, const at::Tensor& message);
// values (fp32 or bf16 [n]) <- the dequantized message, on the CPU or on the current stream of a GPU, with bitwise
// equal results.
void decode_weights(WeightCodes codes, const at::Tensor& message, const at::Tensor& values);

}  // namespace mpzero::parallel
