#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "parallel/optimizer/bf16_bits.hpp"
#include "parallel/quantization/block_format.hpp"
#include "parallel/quantization/nf4.hpp"

namespace mpzero::parallel {
namespace {

constexpr int64_t kBlocks = kNf4Group / kNf4Block;  // blocks per group
constexpr float kLargestCode = 255;

// Returns the largest magnitude. NaN compares greater than all numbers.
float largest_of(const float* values) {
  uint32_t top = 0;
  for (int64_t i = 0; i < kNf4Block; ++i) top = std::max(top, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffU);
  return std::bit_cast<float>(top);
}

// Writes the indices of the levels nearest to values / largest. Ties select the lower level.
void encode_block(const float* values, float largest, uint8_t* out) {
  float x[kNf4Block];
  int32_t codes[kNf4Block] = {};
  for (int64_t i = 0; i < kNf4Block; ++i) x[i] = values[i] / largest;
  for (int k = 0; k < 15; ++k) {
    const float middle = (kNf4.v[k] + kNf4.v[k + 1]) / 2;
    for (int64_t i = 0; i < kNf4Block; ++i) codes[i] += x[i] > middle ? 1 : 0;
  }
  for (int64_t i = 0; i < kNf4Block / 2; ++i) out[i] = static_cast<uint8_t>(codes[2 * i] | (codes[2 * i + 1] << 4));
}

void encode_group(const float* values, const Nf4Parts<uint8_t, float>& to) {
  float scales[kBlocks];
  float least = std::numeric_limits<float>::infinity(), most = 0;
  bool has_nan = false;
  for (int64_t b = 0; b < kBlocks; ++b) {
    const float* const block = values + b * kNf4Block;
    scales[b] = largest_of(block);
    least = std::min(least, scales[b]);
    most = std::max(most, scales[b]);
    has_nan |= std::isnan(scales[b]);
    encode_block(block, std::max(scales[b], kSmallestMaximum), to.codes + b * kNf4Block / 2);
  }
  if (has_nan) least = std::numeric_limits<float>::quiet_NaN();
  const float step = std::max(most - least, kSmallestMaximum) / kLargestCode;
  for (int64_t b = 0; b < kBlocks; ++b) {
    const float code = (scales[b] - least) / step;
    // `code` is NaN for infinite and NaN scales, whose group is dequantized as NaN.
    to.scale_codes[b] = code > 0 ? static_cast<uint8_t>(std::nearbyint(std::min(code, kLargestCode))) : 0;
  }
  to.groups[0] = least;
  to.groups[1] = step;
}

template <typename Value>
void decode_block(const Nf4Spans& s, int64_t block) {
  const auto parts = nf4_parts<const float>(s.message, s.count);
  const float* const group = parts.groups + 2 * (block / kBlocks);
  const float scale = __builtin_fmaf(static_cast<float>(parts.scale_codes[block]), group[1], group[0]);
  const uint8_t* const codes = parts.codes + block * kNf4Block / 2;
  auto* const values = static_cast<Value*>(s.values) + block * kNf4Block;
  for (int64_t i = 0; i < kNf4Block / 2; ++i) {
    values[2 * i] = round_to<Value>(kNf4.v[codes[i] & 15] * scale);
    values[2 * i + 1] = round_to<Value>(kNf4.v[codes[i] >> 4] * scale);
  }
}

}  // namespace

void encode_nf4(const float* values, int64_t count, uint8_t* message) {
  const auto parts = nf4_parts<float>(message, count);
  at::parallel_for(0, count / kNf4Group, 1, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      encode_group(values + g * kNf4Group,
                   {parts.codes + g * kNf4Group / 2, parts.scale_codes + g * kBlocks, parts.groups + 2 * g});
    }
  });
}

void decode_nf4_host(const Nf4Spans& spans) {
  at::parallel_for(0, spans.count / kNf4Block, kBlocks, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      spans.values_are_bf16 ? decode_block<Bf16Bits>(spans, block) : decode_block<float>(spans, block);
    }
  });
}

}  // namespace mpzero::parallel
