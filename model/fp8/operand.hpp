#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "model/fp8/matrix.hpp"

namespace mpzero::model {

// Operand of a layer's matmuls: a matrix [N, C] in its own dtype, or in FP8 in the forms that these matmuls read. An
// operand may be empty. An FP8 operand also keeps the original matrix if adapters read it.
class Operand {
 public:
  Operand() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): implicit by design.
  Operand(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  // `rows` or `columns` may be undefined.
  Operand(fp8::Matrix rows, fp8::Matrix columns, at::Tensor tensor = {})
      : tensor_(std::move(tensor)), rows_(std::move(rows)), columns_(std::move(columns)) {}

  bool defined() const { return tensor_.defined() || is_fp8(); }
  bool is_fp8() const { return rows_.defined() || columns_.defined(); }
  const at::Tensor& tensor() const { return tensor_; }
  // FP8 forms: rows() is [N, C], and columns() is [C, N].
  const fp8::Matrix& rows() const { return rows_; }
  const fp8::Matrix& columns() const { return columns_; }
  // Returns N for dimension 0 and C for dimension 1.
  int64_t size(int64_t dimension) const;
  at::Device device() const;
  // Returns columns [begin, begin + count) of the matrix. In FP8, the result has only the columns() form; rows()
  // is undefined.
  Operand narrow_columns(int64_t begin, int64_t count) const;

  void reset() { *this = {}; }
  // Frees rows(), the form for matmuls with inner dimension C.
  void drop_rows() { rows_ = {}; }

 private:
  at::Tensor tensor_;
  fp8::Matrix rows_, columns_;
};

}  // namespace mpzero::model
