#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "model/fp8/matrix.hpp"

namespace mpzero::model {

// An operand of a layer's products: a matrix [N, C] in its own dtype, or in FP8 in the forms that its products read.
// Empty if nothing is kept. An FP8 operand also keeps the matrix if adapters read it.
class Operand {
 public:
  Operand() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a tensor is an operand.
  Operand(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  // Either may be undefined.
  Operand(fp8::Matrix rows, fp8::Matrix columns, at::Tensor tensor = {})
      : tensor_(std::move(tensor)), rows_(std::move(rows)), columns_(std::move(columns)) {}

  bool defined() const { return tensor_.defined() || is_fp8(); }
  bool is_fp8() const { return rows_.defined() || columns_.defined(); }
  const at::Tensor& tensor() const { return tensor_; }
  // [N, C] and [C, N].
  const fp8::Matrix& rows() const { return rows_; }
  const fp8::Matrix& columns() const { return columns_; }
  // N, C.
  int64_t size(int64_t dimension) const;
  at::Device device() const;
  // Columns [begin, begin + count); for FP8, only columns() is narrowed and kept.
  Operand narrow_columns(int64_t begin, int64_t count) const;

  void reset() { *this = {}; }
  // Frees the form for products whose inner dimension is C.
  void drop_rows() { rows_ = {}; }
  // All defined tensors.
  std::vector<at::Tensor> tensors() const;

 private:
  at::Tensor tensor_;
  fp8::Matrix rows_, columns_;
};

}  // namespace mpzero::model
