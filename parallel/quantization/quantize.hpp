#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/quantization/block_format.hpp"
#include "parallel/quantization/random_rounding.hpp"

// Block-wise quantization on the CPU or on the current stream of a GPU, with bitwise equal results. Values are
// contiguous fp32 or bf16 [n], with n a multiple of kMessageAlignment. Messages are uint8 [format.message_bytes(n)],
// aligned to 16 bytes. A block with a non-finite number is dequantized as NaN.
namespace mpzero::parallel {

// message <- values + residual, with unbiased stochastic rounding. residual (fp32 or bf16) <- the rounding error of
// each element, which is smaller than the scale of its block. `first`: position of the first element, which selects the
// random numbers.
void quantize_with_residual(const at::Tensor& values, const at::Tensor& residual, const at::Tensor& message,
                            const BlockFormat& format, RoundingKey key, int64_t first);

// message <- wanted - current, rounded to nearest.
void quantize_difference(const at::Tensor& wanted, const at::Tensor& current, const at::Tensor& message,
                         const BlockFormat& format);

// values <- values + the dequantized message, computed in fp32.
void add_message(const at::Tensor& message, const at::Tensor& values, const BlockFormat& format);

// sum <- the sum of the dequantized messages (uint8 [messages, message_bytes]), added in fp32 in row order and rounded
// once. `own` is added in place of row `own_row`, which is not read. `sum` may alias `own`.
void sum_messages(const at::Tensor& messages, int64_t own_row, const at::Tensor& own, const at::Tensor& sum,
                  const BlockFormat& format);

}  // namespace mpzero::parallel
