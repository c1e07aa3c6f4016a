#pragma once

#include <cstdint>
#include <limits>

namespace mpzero {

// Returns a * b * c for non-negative numbers, or the maximum of int64_t on overflow.
inline int64_t saturating_product(int64_t a, int64_t b, int64_t c = 1) {
  int64_t product = 0;
  const bool overflow = __builtin_mul_overflow(a, b, &product) || __builtin_mul_overflow(product, c, &product);
  return overflow ? std::numeric_limits<int64_t>::max() : product;
}

}  // namespace mpzero
