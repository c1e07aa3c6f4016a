#pragma once

#include <ATen/native/CPUBlas.h>

#include <cstdint>
#include <type_traits>

namespace mpzero::model::cpu {

// oneDNN's micro-kernel for products of blocks ("brgemm") in LibTorch: uses AMX tiles, AVX512_BF16 or AVX-512. The
// destructor releases the thread's AMX tiles, which stay configured until then.
template <typename T>
class MicroKernel {
 public:
  MicroKernel() = default;
  ~MicroKernel() { at::native::cpublas::brgemm_release(kPairs); }
  MicroKernel(const MicroKernel&) = delete;
  MicroKernel& operator=(const MicroKernel&) = delete;

  // sums [rows, columns] = or += a [rows, depth] panel [depth, columns]: rows of a and of sums are contiguous, a_stride
  // and sums_stride apart; the panel is in the order of pack.hpp, `width` wide. In bf16 depth is a multiple of 32.
  void multiply(int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t a_stride, const T* panel,
                int64_t width, bool adds, float* sums, int64_t sums_stride) const {
    at::native::cpublas::brgemm(rows, columns, depth, a_stride, width, sums_stride, adds, a, panel, sums, kPairs);
  }

 private:
  static constexpr bool kPairs = !std::is_same_v<T, float>;
};

}  // namespace mpzero::model::cpu
