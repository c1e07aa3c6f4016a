#pragma once

#include <ATen/core/Tensor.h>

#include "model/kernels/cpu/dropout_mask.hpp"

namespace mpzero::model {

// In place; x is contiguous. Its gradient is that of the same call.
void dropout_(const at::Tensor& x, const Dropout& dropout);
// A copy, or x itself without dropout.
at::Tensor after_dropout(const at::Tensor& x, const Dropout& dropout);

}  // namespace mpzero::model
