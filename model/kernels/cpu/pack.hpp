#pragma once

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstdint>

namespace mpzero::model::cpu {

// Packs blocks of matrices in the layout that the matrix micro-kernel reads. All functions need AVX-512 (F, BW, VL).
//
// A panel is `columns` columns of B [depth, .]: element (k, n) of it at panel[k * width + n] in fp32. In bf16 two
// consecutive k lie next to each other ("VNNI"): at panel[(k / 2 * width + n) * 2 + k % 2]. width >= columns is a
// multiple of 16. Elements beyond `columns`, or beyond `depth` if it is odd, are zero.

// Packs from B: `source` points to the panel's element (0, 0); `stride` is the row stride.
void pack_rows(const c10::BFloat16* source, int64_t stride, int64_t depth, int64_t columns, int64_t width,
               c10::BFloat16* panel);
void pack_rows(const float* source, int64_t stride, int64_t depth, int64_t columns, int64_t width, float* panel);

// Packs from the transpose of B: the panel's columns are rows of `source`, `stride` apart.
void pack_transposed(const c10::BFloat16* source, int64_t stride, int64_t depth, int64_t columns, int64_t width,
                     c10::BFloat16* panel);
void pack_transposed(const float* source, int64_t stride, int64_t depth, int64_t columns, int64_t width, float* panel);

// Zero-fills a panel that was packed with `depth` up to a depth of `padded`, which is even.
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
