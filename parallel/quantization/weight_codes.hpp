#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

// Frozen weights in 8 or 4 bits. A message is uint8 [code_bytes(codes, n)], aligned to 16 bytes, and holds n values, a
// multiple of kCodedGroup. A block or group that holds a number which is not finite is read as no finite numbers.
namespace mpzero::parallel {

enum class WeightCodes : uint8_t {
  kNone,
  kInt8,  // a message in kInt8: 8.125 bits a value
  kNf4,   // NF4 with double quantization: 4.129 bits a value, see nf4.hpp
};

// Messages of consecutive multiples of this hold the same codes as one message of all.
inline constexpr int64_t kCodedGroup = 16384;

int64_t code_bytes(WeightCodes codes, int64_t count);
// message <- values (fp32 [n]), both in host memory.
void encode_weights(WeightCodes codes, const at::Tensor& values, const at::Tensor& message);
// values (fp32 or bf16 [n]) <- what the message holds, on the CPU or, queued on the current stream, on a GPU, with the
// same bits.
void decode_weights(WeightCodes codes, const at::Tensor& message, const at::Tensor& values);

}  // namespace mpzero::parallel
