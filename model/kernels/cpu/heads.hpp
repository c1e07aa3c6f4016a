#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/kernels/cpu/dispatch.hpp"

namespace mpzero::model::cpu {

// The largest head that the kernels of this room take.
inline constexpr int64_t kLargestHead = 256;

// A tensor [B, T, heads, D] by the distances of its dimensions but the last, whose elements are contiguous.
template <typename T>
struct HeadsOf {
  explicit HeadsOf(const at::Tensor& x)
      : first(data<T>(x)), batch(x.stride(0)), token(x.stride(1)), head(x.stride(2)) {}
  T* at(int64_t b, int64_t t, int64_t h) const { return first + b * batch + t * token + h * head; }
  T* first;
  int64_t batch, token, head;
};

}  // namespace mpzero::model::cpu
