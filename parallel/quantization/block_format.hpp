#pragma once

#include <cstdint>

namespace mpzero::parallel {

// Block-wise quantization. The elements of a block share one fp32 scale, and each element is a signed integer times the
// scale. A message contains the integers of all elements, then the scales of all blocks, then up to 15 unused bytes.
// With 4 bits, the first element of a byte is in the lower half.
struct BlockFormat {
  int bits = 8;            // per element: 8 or 4
  int64_t block = 256;     // elements per block, a multiple of kMessageAlignment
  int largest_code = 127;  // integers are in [-largest_code, largest_code]

  int64_t blocks(int64_t elements) const { return (elements + block - 1) / block; }
  int64_t code_bytes(int64_t elements) const { return elements * bits / 8; }
  // Returns the number of bytes of a message with `elements` elements, which must be a multiple of kMessageAlignment.
  int64_t message_bytes(int64_t elements) const {
    constexpr int64_t kAlignment = 16;
    const int64_t bytes = code_bytes(elements) + blocks(elements) * static_cast<int64_t>(sizeof(float));
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
};

// The number of elements of a message or shard is a multiple of this number, so that scales are aligned.
inline constexpr int64_t kMessageAlignment = 64;

// Formats with 8.125 and 4.25 bits per element. kInt4 uses smaller blocks because it has fewer levels, and an outlier
// reduces the precision of its whole block.
inline constexpr BlockFormat kInt8{.bits = 8, .block = 256, .largest_code = 127};
inline constexpr BlockFormat kInt4{.bits = 4, .block = 128, .largest_code = 7};

// A block whose amax is smaller than kSmallestMaximum is quantized to zeros, because the inverse of the scale could
// overflow.
inline constexpr float kSmallestMaximum = 0x1p-100F;

}  // namespace mpzero::parallel
