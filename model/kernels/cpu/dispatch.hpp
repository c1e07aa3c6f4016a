#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>

namespace mpzero::model::cpu {

// Calls body(T{}) with the element type T: float or c10::BFloat16.
template <typename Body>
void for_type(const at::Tensor& tensor, const Body& body) {
  if (tensor.scalar_type() == at::kFloat) {
    body(float{});
  } else {
    body(c10::BFloat16{});
  }
}

template <typename T>
T* data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

// Returns uninitialized memory for `count` values of T.
template <typename T>
at::Tensor elements(int64_t count) {
  return at::empty({count}, at::CppTypeToScalarType<T>::value);
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Calls body(begin, end) in parallel for ranges of rows with at least about 16 Ki elements each.
template <typename Body>
void for_rows(int64_t rows, int64_t columns, const Body& body) {
  at::parallel_for(0, rows, std::max<int64_t>(1, (int64_t{1} << 14) / std::max<int64_t>(columns, 1)), body);
}

// Number of rows per partial sum.
inline constexpr int64_t kSummedRows = 32;

// Calls body(block, first row, last row + 1) in parallel for blocks of kSummedRows rows. The last block may be smaller.
template <typename Body>
void for_blocks(int64_t rows, int64_t columns, const Body& body) {
  for_rows(ceil_div(rows, kSummedRows), kSummedRows * columns, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      body(block, block * kSummedRows, std::min(rows, (block + 1) * kSummedRows));
    }
  });
}

}  // namespace mpzero::model::cpu
