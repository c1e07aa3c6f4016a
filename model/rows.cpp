#include "model/rows.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace mpzero::model {

bool rows_adjacent(std::span<const at::Tensor> matrices) {
  const at::Tensor& first = matrices.front();
  const char* expected = static_cast<const char*>(first.const_data_ptr());
  for (const at::Tensor& matrix : matrices) {
    if (!matrix.is_contiguous() || matrix.dim() > 2 || matrix.dim() != first.dim() ||
        matrix.sizes().slice(1) != first.sizes().slice(1) || matrix.scalar_type() != first.scalar_type() ||
        !matrix.is_alias_of(first) || static_cast<const char*>(matrix.const_data_ptr()) != expected) {
      return false;
    }
    expected += matrix.nbytes();
  }
  return true;
}

at::Tensor join_rows(std::span<const at::Tensor> matrices) {
  if (!rows_adjacent(matrices)) {
    throw_failure("join_rows: the weights of a unit must be contiguous in one buffer");
  }
  int64_t rows = 0;
  for (const at::Tensor& matrix : matrices) rows += matrix.size(0);
  const at::Tensor& first = matrices.front();
  if (first.dim() == 1) return first.as_strided({rows}, {1});
  return first.as_strided({rows, first.size(1)}, {first.size(1), 1});
}

int64_t rows_of_piece(int64_t rows, int64_t most) {
  constexpr int64_t kTile = 256;  // rows of the largest tile
  const int64_t pieces = std::max<int64_t>(1, (rows + most - 1) / most);
  const int64_t even = (rows + pieces - 1) / pieces;
  const int64_t tiled = (even + kTile - 1) / kTile * kTile;
  return std::max<int64_t>(1, tiled <= most ? tiled : even);
}

}  // namespace mpzero::model
