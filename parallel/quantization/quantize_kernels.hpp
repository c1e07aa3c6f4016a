#pragma once

#include <cstdint>

#include "parallel/quantization/block_format.hpp"
#include "parallel/quantization/random_rounding.hpp"

// Kernels of quantize.hpp on raw memory.
namespace mpzero::parallel {

struct QuantizedSpans {
  const void* values;  // values, or wanted values
  bool values_are_bf16;
  void* residual;  // residual, or current values (read-only)
  bool residual_is_bf16;
  int8_t* codes;  // two per byte with 4 bits
  float* scales;
  int64_t count;
  BlockFormat format;
};

// Arguments for the sum of `rows` messages that are `stride` bytes apart.
struct SummedSpans {
  const int8_t* codes;  // codes of the first message
  int64_t scales_offset;
  int64_t stride;
  int64_t rows;
  int64_t own_row;  // row that `own` replaces
  const void* own;
  bool own_is_bf16;
  void* sum;
  bool sum_is_bf16;
  int64_t count;
  BlockFormat format;
};

template <typename A, typename B>
struct Types {
  using First = A;
  using Second = B;
};

// Calls call(Types<A, B>()), where A (or B) is `Bf16` if first_is_bf16 (or second_is_bf16) is true, otherwise float.
template <typename Bf16, typename Call>
void with_types(bool first_is_bf16, bool second_is_bf16, const Call& call) {
  if (first_is_bf16) {
    second_is_bf16 ? call(Types<Bf16, Bf16>()) : call(Types<Bf16, float>());
  } else {
    second_is_bf16 ? call(Types<float, Bf16>()) : call(Types<float, float>());
  }
}

void quantize_with_residual_host(const QuantizedSpans& spans, RoundingKey key, uint32_t first);
void quantize_difference_host(const QuantizedSpans& spans);
void sum_messages_host(const SummedSpans& spans);

// The following functions queue GPU kernels on the current stream.
void quantize_with_residual_cuda(const QuantizedSpans& spans, RoundingKey key, uint32_t first);
void quantize_difference_cuda(const QuantizedSpans& spans);
void sum_messages_cuda(const SummedSpans& spans);

}  // namespace mpzero::parallel
