#pragma once

#include <ATen/core/Tensor.h>

#include "model/kernels/cpu/dropout_mask.hpp"

namespace mpzero::model {

// Applies dropout in place to x (contiguous). The backward pass applies the same `dropout` to the gradient.
void dropout_(const at::Tensor& x, const Dropout& dropout);
// Returns a copy of x after dropout, or x itself if the rate is 0.
at::Tensor after_dropout(const at::Tensor& x, const Dropout& dropout);

}  // namespace mpzero::model
