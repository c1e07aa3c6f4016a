#include "model/fp8/operand.hpp"

namespace mpzero::model {

int64_t Operand::size(int64_t dimension) const {
  if (tensor_.defined()) return tensor_.size(dimension);
  return rows_.defined() ? rows_.codes.size(dimension) : columns_.codes.size(1 - dimension);
}

at::Device Operand::device() const {
  if (tensor_.defined()) return tensor_.device();
  return (rows_.defined() ? rows_ : columns_).codes.device();
}

Operand Operand::narrow_columns(int64_t begin, int64_t count) const {
  if (!is_fp8()) return tensor_.narrow(1, begin, count);
  return {fp8::Matrix(), columns_.narrow(begin, count)};
}

}  // namespace mpzero::model
