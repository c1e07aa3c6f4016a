#pragma once

#include <cstdint>

namespace mpzero::parallel {

// How numbers are sent in few bits: in blocks of neighbours that share one fp32 scale, each as a signed integer, its
// code, times the scale. A message holds the codes of all its elements, then the scales of all its blocks, then up to
// 15 unused bytes. Of two codes of 4 bits in a byte, the element that comes first has the lower half.
struct BlockFormat {
  int bits = 8;            // of a code: 8 or 4
  int64_t block = 256;     // elements, a multiple of kMessageAlignment
  int largest_code = 127;  // codes are in [-largest_code, largest_code]

  int64_t blocks(int64_t elements) const { return (elements + block - 1) / block; }
  int64_t code_bytes(int64_t elements) const { return elements * bits / 8; }
  // Of a message of `elements`, a multiple of kMessageAlignment.
  int64_t message_bytes(int64_t elements) const {
    constexpr int64_t kAlignment = 16;
    const int64_t bytes = code_bytes(elements) + blocks(elements) * static_cast<int64_t>(sizeof(float));
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
};

// Elements of a message come in multiples of this, as those of a shard do, so that scales are aligned.
inline constexpr int64_t kMessageAlignment = 64;

// 8.125 and 4.25 bits an element. Fewer levels need smaller blocks, in which one large element costs its neighbours
// less of their precision.
inline constexpr BlockFormat kInt8{.bits = 8, .block = 256, .largest_code = 127};
inline constexpr BlockFormat kInt4{.bits = 4, .block = 128, .largest_code = 7};

// With a smaller largest element a block is sent as zeros, since the inverse of its scale could overflow.
inline constexpr float kSmallestMaximum = 0x1p-100F;

}  // namespace mpzero::parallel
