#pragma once

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstdint>

namespace mpzero::model::cpu {

// Copies of blocks of matrices in the orders that a micro-kernel of matrix products reads. All need AVX-512 (F, BW,
// VL).
//
// A panel is `columns` columns of B [depth, .]: element (k, n) of it at panel[k * width + n] in fp32. In bf16 two
// consecutive k lie next to each other ("VNNI"): at panel[(k / 2 * width + n) * 2 + k % 2]. width >= columns is a
// multiple of 16. What lies beyond `columns`, or beyond `depth` if it is odd, is zero.

// From B itself: `source` is its element (0, 0) of the panel, `stride` the distance of two rows.
void pack_rows(const c10::BFloat16* source, int64_t stride, int64_t depth, int64_t columns, int64_t width,
               c10::BFloat16* panel);
void pack_rows(const float* source, int64_t stride, int64_t depth, int64_t columns, int64_t width, float* panel);

// From the transpose of B: the columns of the panel are rows of `source`, `stride` apart.
void pack_transposed(const c10::BFloat16* source, int64_t stride, int64_t depth, int64_t columns, int64_t width,
                     c10::BFloat16* panel);
void pack_transposed(const float* source, int64_t stride, int64_t depth, int64_t columns, int64_t width, float* panel);

// Zeros in a panel from what was packed with `depth` up to a depth of `padded`, which is even.
template <typename T>
void zero_rest(int64_t depth, int64_t width, int64_t padded, T* panel) {
  constexpr int64_t kValues = 4 / sizeof(T);
  std::fill(panel + (depth + kValues - 1) / kValues * kValues * width, panel + padded * width, T(0.0F));
}

// block [rows, padded_depth] <- the transpose of source [depth, rows], whose rows are `stride` apart; zero beyond
// `depth`. padded_depth is a multiple of 32.
void transpose(const c10::BFloat16* source, int64_t stride, int64_t depth, int64_t rows, int64_t padded_depth,
               c10::BFloat16* block);
void transpose(const float* source, int64_t stride, int64_t depth, int64_t rows, int64_t padded_depth, float* block);

}  // namespace mpzero::model::cpu
