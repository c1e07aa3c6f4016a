#pragma once

#include <c10/cuda/CUDAFunctions.h>

#include <cstdio>

namespace mpzero {

// False, and says so, on a machine without a GPU: the tests of this folder pass there without having run.
inline bool have_gpu() {
  if (c10::cuda::device_count() > 0) return true;
  std::puts("skipped: no GPU");
  return false;
}

}  // namespace mpzero
