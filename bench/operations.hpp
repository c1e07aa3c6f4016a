#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "bench/roofline.hpp"
#include "model/matmuls.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::bench {

using Tensors = std::vector<at::Tensor>;

// Returns a random bf16 tensor on the GPU.
at::Tensor random(at::IntArrayRef shape);

// Rotating inputs: one tensor of the same shape per set.
class Rotating {
 public:
  Rotating(int sets, at::IntArrayRef shape) {
    for (int i = 0; i < sets; ++i) tensors_.push_back(random(shape));
  }
  at::Tensor& operator[](int set) { return tensors_[static_cast<size_t>(set)]; }

 private:
  Tensors tensors_;
};

// Measures the operations of a part of the step separately. `times`: occurrences of the part in a step, or 0 for an
// alternative implementation.
void measure_operations(const std::string& part, const std::vector<model::Operation>& operations, double times,
                        model::Matmuls& matmuls, Roofline& roofline);

}  // namespace mpzero::bench
