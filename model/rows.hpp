#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace mpzero::model {

// Returns true if the matrices [rows_i, columns], or the vectors [rows_i], are contiguous in one buffer, in this order.
bool rows_adjacent(std::span<const at::Tensor> matrices);

// Returns one view [sum of rows_i, columns], or [sum of rows_i], over `matrices`. Throws Failure if the matrices are
// not adjacent.
at::Tensor join_rows(std::span<const at::Tensor> matrices);

// Returns the number of rows per piece if `rows` rows are split into the fewest pieces of at most `most` rows. The last
// piece may be smaller. If possible, returns a multiple of the tile size of matmuls.
int64_t rows_of_piece(int64_t rows, int64_t most);

}  // namespace mpzero::model
