#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace mpzero::model {

// True where the matrices [rows_i, columns], or the vectors [rows_i], lie one behind another in one buffer.
bool rows_adjacent(std::span<const at::Tensor> matrices);

// One view [sum of rows_i, columns], or [sum of rows_i], of them. Throws Failure where they are not adjacent.
at::Tensor join_rows(std::span<const at::Tensor> matrices);

}  // namespace mpzero::model
