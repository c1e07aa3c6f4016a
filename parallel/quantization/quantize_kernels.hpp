#pragma once

#include <cstdint>

#include "parallel/quantization/block_format.hpp"
#include "parallel/quantization/random_rounding.hpp"

// The kernels of quantize.hpp, over raw memory.
namespace mpzero::parallel {

struct QuantizedSpans {
  const void* values;  // or the wanted values
  bool values_are_bf16;
  void* residual;  // or, read-only, the current values
  bool residual_is_bf16;
  int8_t* codes;  // two per byte with 4 bits
  float* scales;
  int64_t count;
  BlockFormat format;
};

// Adds up `rows` messages, `stride` bytes apart.
struct SummedSpans {
  const int8_t* codes;  // of the first message
  int64_t scales_offset;
  int64_t stride;
  int64_t rows;
  int64_t own_row;  // replaced by `own`
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

// Calls `call` with float or `Bf16` for each of the two flags.
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

// On the current stream.
void quantize_with_residual_cuda(const QuantizedSpans& spans, RoundingKey key, uint32_t first);
void quantize_difference_cuda(const QuantizedSpans& spans);
void sum_messages_cuda(const SummedSpans& spans);

}  // namespace mpzero::parallel
