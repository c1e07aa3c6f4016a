#include "model/kernels/cpu/pack.hpp"

#include <immintrin.h>

#include <algorithm>

// Compiles only the following code, not the headers above, for AVX-512.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl")

namespace mpzero::model::cpu {
namespace {

// Rows and columns of a tile of 32-bit values, which is transposed in registers.
constexpr int64_t kTile = 16;

__mmask16 first_lanes(int64_t count) { return static_cast<__mmask16>((1U << std::min(count, kTile)) - 1U); }

// In bf16, a 32-bit value contains the elements of one row with two consecutive k.
struct Tile {
  __m512i row[kTile];

  // Loads the first `bytes` (at most 64) of the first `rows` rows, which are `stride` bytes apart.
  void load(const void* source, int64_t stride, int64_t rows, int64_t bytes) {
    const auto mask = bytes >= 64 ? ~__mmask64{0} : (__mmask64{1} << bytes) - 1;
    const char* p = static_cast<const char*>(source);
    for (int64_t i = 0; i < kTile; ++i) {
      row[i] = i < rows ? _mm512_maskz_loadu_epi8(mask, p + i * stride) : _mm512_setzero_si512();
    }
  }

  void transpose() {
    __m512i t[kTile];
    for (int i = 0; i < kTile; i += 2) {
      t[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
      t[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
    }
    // row[4 * g + j] contains column j of each 128-bit lane of rows 4 * g to 4 * g + 3.
    for (int i = 0; i < kTile; i += 4) {
      row[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
      row[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
      row[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
      row[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    // Transposes 4 x 4 lanes for each j.
    for (int j = 0; j < 4; ++j) {
      const __m512i low01 = _mm512_shuffle_i32x4(row[j], row[4 + j], 0x88),
                    high01 = _mm512_shuffle_i32x4(row[j], row[4 + j], 0xDD);
      const __m512i low23 = _mm512_shuffle_i32x4(row[8 + j], row[12 + j], 0x88);
      const __m512i high23 = _mm512_shuffle_i32x4(row[8 + j], row[12 + j], 0xDD);
      t[j] = _mm512_shuffle_i32x4(low01, low23, 0x88);
      t[8 + j] = _mm512_shuffle_i32x4(low01, low23, 0xDD);
      t[4 + j] = _mm512_shuffle_i32x4(high01, high23, 0x88);
      t[12 + j] = _mm512_shuffle_i32x4(high01, high23, 0xDD);
    }
    std::copy(t, t + kTile, row);
  }

  // Stores the first `rows` rows, `stride` bytes apart.
  void store(void* destination, int64_t stride, int64_t rows) const {
    char* p = static_cast<char*>(destination);
    for (int64_t i = 0; i < std::min(rows, kTile); ++i) _mm512_storeu_si512(p + i * stride, row[i]);
  }
};

// Writes the transpose of source [columns, depth] to panel [ceil(depth / values), width] of 32-bit values. Each 32-bit
// value contains `values` elements of source.
template <typename T>
void transpose_into_panel(const T* source, int64_t stride, int64_t depth, int64_t columns, int64_t width, T* panel) {
  constexpr int64_t kValues = 4 / sizeof(T), kDepth = kTile * kValues;
  for (int64_t k = 0; k < depth; k += kDepth) {
    const int64_t present = std::min(depth - k, kDepth);
    for (int64_t n = 0; n < width; n += kTile) {
      Tile tile;
      tile.load(source + std::min(n, columns - 1) * stride + k, stride * static_cast<int64_t>(sizeof(T)), columns - n,
                present * static_cast<int64_t>(sizeof(T)));
      tile.transpose();
      tile.store(panel + (k * width + n * kValues), width * 4, (present + kValues - 1) / kValues);
    }
  }
}

// Returns the permutation that interleaves the first or the last 16 values of two vectors of 32 bf16.
__m512i interleaving(int first) {
  alignas(64) uint16_t positions[32];
  for (int i = 0; i < 16; ++i) {
    positions[2 * i] = static_cast<uint16_t>(first + i);
    positions[2 * i + 1] = static_cast<uint16_t>(32 + first + i);
  }
  return _mm512_load_si512(positions);
}

}  // namespace

void pack_rows(const c10::BFloat16* source, int64_t stride, int64_t depth, int64_t columns, int64_t width,
               c10::BFloat16* panel) {
  const __m512i low = interleaving(0), high = interleaving(16);
  for (int64_t k = 0; k < depth; k += 2) {
    const c10::BFloat16* even = source + k * stride;
    const c10::BFloat16* odd = k + 1 < depth ? even + stride : nullptr;
    for (int64_t n = 0; n < width; n += 2 * kTile) {
      const int64_t present = std::clamp<int64_t>(columns - n, 0, 2 * kTile);
      const auto mask = static_cast<__mmask32>((uint64_t{1} << present) - 1);
      const __m512i first = present > 0 ? _mm512_maskz_loadu_epi16(mask, even + n) : _mm512_setzero_si512();
      const __m512i second =
          present > 0 && odd != nullptr ? _mm512_maskz_loadu_epi16(mask, odd + n) : _mm512_setzero_si512();
      c10::BFloat16* out = panel + k * width + 2 * n;
      _mm512_storeu_si512(out, _mm512_permutex2var_epi16(first, low, second));
      if (n + kTile < width) _mm512_storeu_si512(out + 2 * kTile, _mm512_permutex2var_epi16(first, high, second));
    }
  }
}

void pack_rows(const float* source, int64_t stride, int64_t depth, int64_t columns, int64_t width, float* panel) {
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t n = 0; n < width; n += kTile) {
      const int64_t present = std::max<int64_t>(columns - n, 0);
      _mm512_storeu_ps(panel + k * width + n, _mm512_maskz_loadu_ps(first_lanes(present), source + k * stride + n));
    }
  }
}

void pack_transposed(const c10::BFloat16* source, int64_t stride, int64_t depth, int64_t columns, int64_t width,
                     c10::BFloat16* panel) {
  transpose_into_panel(source, stride, depth, columns, width, panel);
}

void pack_transposed(const float* source, int64_t stride, int64_t depth, int64_t columns, int64_t width, float* panel) {
  transpose_into_panel(source, stride, depth, columns, width, panel);
}

void transpose(const c10::BFloat16* source, int64_t stride, int64_t depth, int64_t rows, int64_t padded_depth,
               c10::BFloat16* block) {
  // Pairs of consecutive k form 32-bit values, and the values form a tile.
  alignas(64) c10::BFloat16 pairs[kTile * 2 * kTile];
  for (int64_t row = 0; row < rows; row += kTile) {
    const int64_t count = std::min(rows - row, kTile);
    for (int64_t k = 0; k < padded_depth; k += 2 * kTile) {
      const int64_t present = std::clamp<int64_t>(depth - k, 0, 2 * kTile);
      if (present > 0) pack_rows(source + k * stride + row, stride, present, count, kTile, pairs);
      Tile tile;
      tile.load(pairs, 64, (present + 1) / 2, 64);
      tile.transpose();
      tile.store(block + row * padded_depth + k, padded_depth * 2, count);
    }
  }
}

void transpose(const float* source, int64_t stride, int64_t depth, int64_t rows, int64_t padded_depth, float* block) {
  for (int64_t row = 0; row < rows; row += kTile) {
    const int64_t count = std::min(rows - row, kTile);
    for (int64_t k = 0; k < padded_depth; k += kTile) {
      Tile tile;
      tile.load(source + std::min(k, depth - 1) * stride + row, stride * 4, depth - k, count * 4);
      tile.transpose();
      tile.store(block + row * padded_depth + k, padded_depth * 4, count);
    }
  }
}

}  // namespace mpzero::model::cpu

#pragma GCC pop_options
