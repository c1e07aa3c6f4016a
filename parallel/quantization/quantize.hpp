#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/quantization/block_format.hpp"
#include "parallel/quantization/random_rounding.hpp"

// Block-wise quantization, on the CPU or, queued on the current stream, on a GPU, with the same bits. Values are fp32
// or bf16 [n], contiguous, n a multiple of kMessageAlignment; messages are uint8 [format.message_bytes(n)], aligned to
// 16 bytes. A block with a non-finite number is dequantized as NaN.
namespace mpzero::parallel {

// message <- values + residual, with unbiased stochastic rounding; residual <- the rounding error, less than a scale
// per element. `first`: the position of the first element, which selects the random numbers. The residual is fp32 or
// bf16.
void quantize_with_residual(const at::Tensor& values, const at::Tensor& residual, const at::Tensor& message,
                            const BlockFormat& format, RoundingKey key, int64_t first);

// message <- wanted - current, rounded to nearest.
void quantize_difference(const at::Tensor& wanted, const at::Tensor& current, const at::Tensor& message,
                         const BlockFormat& format);

// values <- values + the dequantized message, added in fp32.
void add_message(const at::Tensor& message, const at::Tensor& values, const BlockFormat& format);

// sum <- the dequantized messages and `own`, added in fp32 in the order of `messages` and rounded once. messages: uint8
// [messages, message_bytes]; `own` replaces row `own_row`, which is not read. `sum` may alias `own`.
void sum_messages(const at::Tensor& messages, int64_t own_row, const at::Tensor& own, const at::Tensor& sum,
                  const BlockFormat& format);

}  // namespace mpzero::parallel
