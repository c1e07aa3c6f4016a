#pragma once

#include <ATen/core/Tensor.h>

#include "model/kernels/cpu/dropout_mask.hpp"

namespace mpzero::model {

// In place; x is contiguous. For the backward, call it on the gradient with the same `dropout`.
void dropout_(const at::Tensor& x, const Dropout& dropout);
// A copy, or x itself without dropout.
at::Tensor after_dropout(const at::Tensor& x, const Dropout& dropout);

}  // namespace mpzero::model
