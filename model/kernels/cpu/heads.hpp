#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/kernels/cpu/dispatch.hpp"

namespace mpzero::model::cpu {

// Maximum head size that the kernels in this directory support.
inline constexpr int64_t kLargestHead = 256;

// Pointer and strides of a tensor [B, T, heads, D] whose last dimension is contiguous.
template <typename T>
struct HeadsOf {
  explicit HeadsOf(const at::Tensor& x)
      : first(data<T>(x)), batch(x.stride(0)), token(x.stride(1)), head(x.stride(2)) {}
  T* at(int64_t b, int64_t t, int64_t h) const { return first + b * batch + t * token + h * head; }
  T* first;
  int64_t batch, token, head;
};

}  // namespace mpzero::model::cpu
