#pragma once

#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>

#include "tests/skip.hpp"

namespace mpzero {

// Returns true if the machine has a GPU for each of `ranks` ranks. Otherwise, skips the test case, which must then
// return.
inline bool has_gpu(int ranks = 1) {
  if (c10::cuda::device_count() >= ranks) return true;
  skip_test(ranks == 1 ? std::string("no GPU") : "fewer GPUs than the " + std::to_string(ranks) + " ranks here");
  return false;
}

// Sets deterministic algorithms for a scope.
class Deterministic {
 public:
  explicit Deterministic(bool on) : before_(at::globalContext().deterministicAlgorithms()) {
    at::globalContext().setDeterministicAlgorithms(on, false);
  }
  ~Deterministic() { at::globalContext().setDeterministicAlgorithms(before_, false); }
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;

 private:
  bool before_;
};

}  // namespace mpzero
