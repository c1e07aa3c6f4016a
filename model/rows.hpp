#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace mpzero::model {

// True if the matrices [rows_i, columns], or the vectors [rows_i], are contiguous in one buffer, one after another.
bool rows_adjacent(std::span<const at::Tensor> matrices);

// One view [sum of rows_i, columns], or [sum of rows_i], over `matrices`. Throws Failure if they are not adjacent.
at::Tensor join_rows(std::span<const at::Tensor> matrices);

// Rows per piece if `rows` are split into the fewest pieces of at most `most` rows; the last piece may have fewer. If
// possible, a multiple of the matrix products' tile size.
int64_t rows_of_piece(int64_t rows, int64_t most);

}  // namespace mpzero::model
