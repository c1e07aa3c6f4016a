#pragma once

#include <ATen/native/CPUBlas.h>

#include <cstdint>
#include <type_traits>

namespace mpzero::model::cpu {

// oneDNN's micro-kernel for block matmuls ("brgemm"), as exposed by LibTorch. Uses AMX tiles, AVX512_BF16 or AVX-512.
// The destructor releases the AMX tiles that multiply() configured on this thread.
template <typename T>
class MicroKernel {
 public:
  MicroKernel() = default;
  ~MicroKernel() { at::native::cpublas::brgemm_release(kPairs); }
  MicroKernel(const MicroKernel&) = delete;
  MicroKernel& operator=(const MicroKernel&) = delete;

  // Computes sums [rows, columns] = or += a [rows, depth] * panel [depth, columns]. Rows of `a` and `sums` are
  // contiguous. `panel` has the layout of pack.hpp with width `width`. In bf16, `depth` must be a multiple of 32.
  void multiply(int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t a_stride, const T* panel,
                int64_t width, bool adds, float* sums, int64_t sums_stride) const {
    at::native::cpublas::brgemm(rows, columns, depth, a_stride, width, sums_stride, adds, a, panel, sums, kPairs);
  }

 private:
  static constexpr bool kPairs = !std::is_same_v<T, float>;
};

}  // namespace mpzero::model::cpu
