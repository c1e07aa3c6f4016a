#pragma once

#include <cstdint>

// NF4 with double quantization (arXiv:2305.14314) on raw memory. A value equals one of 16 levels times the scale of its
// block. A block's scale equals the minimum scale of its group plus an 8-bit multiple of the group's step. Unlike the
// paper's encoding, 8-bit floats relative to the mean, this encoding is equally precise for all scales. A message
// contains the 4-bit level indices (the first index of each byte in the lower half), the 8-bit scales, the minimum
// scale and the step of each group (fp32), and up to 15 unused bytes.
namespace mpzero::parallel {

struct Nf4Levels {
  float v[16];
};
// Levels from appendix E: 0 and quantiles of a normal distribution, divided by the largest quantile. The constants have
// the same digits as in bitsandbytes.
inline constexpr Nf4Levels kNf4{{-1.0F, -0.6961928009986877F, -0.5250730514526367F, -0.39491748809814453F,
                                 -0.28444138169288635F, -0.18477343022823334F, -0.09105003625154495F, 0.0F,
                                 0.07958029955625534F, 0.16093020141124725F, 0.24611230194568634F, 0.33791524171829224F,
                                 0.44070982933044434F, 0.5626170039176941F, 0.7229568362236023F, 1.0F}};
inline constexpr int64_t kNf4Block = 64;               // values per scale
inline constexpr int64_t kNf4Group = 256 * kNf4Block;  // values per minimum scale and step

// Pointers to the parts of an NF4 message.
template <typename Byte, typename Float>
struct Nf4Parts {
  Byte *codes, *scale_codes;
  Float* groups;  // [groups, 2]
};
template <typename Float, typename Byte>
Nf4Parts<Byte, Float> nf4_parts(Byte* message, int64_t count) {
  Byte* const scale_codes = message + count / 2;
  return {message, scale_codes, reinterpret_cast<Float*>(scale_codes + count / kNf4Block)};
}

struct Nf4Spans {
  const uint8_t* message;
  void* values;
  bool values_are_bf16;
  int64_t count;  // a multiple of kNf4Group
};

void encode_nf4(const float* values, int64_t count, uint8_t* message);
void decode_nf4_host(const Nf4Spans& spans);
// Dequantizes spans.message on the current stream.
void decode_nf4_cuda(const Nf4Spans& spans);

}  // namespace mpzero::parallel
