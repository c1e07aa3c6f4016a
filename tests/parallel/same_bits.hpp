#pragma once

#include <ATen/core/Tensor.h>

#include <cstring>

namespace mpzero::parallel {

// Returns true if two tensors on any device are bitwise equal, including NaNs.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.cpu().contiguous(), right = b.cpu().contiguous();
  return left.nbytes() == right.nbytes() &&
         (left.numel() == 0 || std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0);
}

}  // namespace mpzero::parallel
