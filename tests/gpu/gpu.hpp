#pragma once

#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>

#include <cstdio>

namespace mpzero {

// False, and says so, on a machine without a GPU: the tests of this folder pass there without having run.
inline bool have_gpu() {
  if (c10::cuda::device_count() > 0) return true;
  std::puts("skipped: no GPU");
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
