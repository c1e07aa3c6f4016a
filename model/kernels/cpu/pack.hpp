#pragma once

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstdint>

namespace mpzero::model::cpu {

// Functions that pack blocks of matrices into the layout of the matrix micro-kernel. All functions require AVX-512 (F,
// BW, VL).
//
// A panel contains `columns` columns of B [depth, .]. In fp32, element (k, n) of the panel is at panel[k * width + n].
// In bf16, each pair of elements with consecutive k is adjacent ("VNNI"), at panel[(k / 2 * width + n) * 2 + k % 2].
// width >= columns must be a multiple of 16. Elements beyond `columns`, and beyond an odd `depth`, are zero.

// Packs a panel from B. `source`: address of the panel's element (0, 0); `stride`: row stride of B.
void pack_rows(const c10::BFloat16* source, int64_t stride, int64_t depth, int64_t columns, int64_t width,
               c10::BFloat16* panel);
void pack_rows(const float* source, int64_t stride, int64_t depth, int64_t columns, int64_t width, float* panel);

// Packs a panel from the transpose of B: the panel's columns are rows of `source` with stride `stride`.
void pack_transposed(const c10::BFloat16* source, int64_t stride, int64_t depth, int64_t columns, int64_t width,
                     c10::BFloat16* panel);
void pack_transposed(const float* source, int64_t stride, int64_t depth, int64_t columns, int64_t width, float* panel);

// Extends a panel that was packed with `depth` to a depth of `padded` with zeros. `padded` must be even.
template <typename T>
void zero_rest(int64_t depth, int64_t width, int64_t padded, T* panel) {
  constexpr int64_t kValues = 4 / sizeof(T);
  std::fill(panel + (depth + kValues - 1) / kValues * kValues * width, panel + padded * width, T(0.0F));
}

// Transposes source [depth, rows] with row stride `stride` into block [rows, padded_depth]. Elements beyond `depth` are
// zero. padded_depth must be a multiple of 32.
void transpose(const c10::BFloat16* source, int64_t stride, int64_t depth, int64_t rows, int64_t padded_depth,
               c10::BFloat16* block);
void transpose(const float* source, int64_t stride, int64_t depth, int64_t rows, int64_t padded_depth, float* block);

}  // namespace mpzero::model::cpu
