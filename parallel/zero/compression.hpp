#pragma once

#include <cstdint>

#include "parallel/quantization/block_format.hpp"

namespace mpzero::parallel {

// What crosses between nodes in fewer bits; nothing does within a node.
struct Compression {
  int gradient_bits = 0;  // 8 or 4; 0: gradients cross as they are
  bool weights = false;   // parameters cross as int8 differences
  uint64_t seed = 0;      // of the random rounding of gradients

  // Of the gradients, if they are compressed.
  const BlockFormat& gradient_format() const { return gradient_bits == 4 ? kInt4 : kInt8; }
};

}  // namespace mpzero::parallel
