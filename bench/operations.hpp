#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "app/measure/operation_times.hpp"
#include "bench/roofline.hpp"

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

// Adds the measured operations of a part of the step. `times`: occurrences of the part in a step, or 0 for an
// alternative implementation.
void add_operations(const std::string& part, const std::vector<measure::OperationTime>& operations, double times,
                    Roofline& roofline);

}  // namespace mpzero::bench
