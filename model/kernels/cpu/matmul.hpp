#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model::cpu {

// Returns true if this CPU has the instructions that matmul() needs for this dtype (AVX-512 for fp32, AVX512_BF16 or
// AMX for bf16) and oneDNN is allowed to use them.
bool has_matmul(at::ScalarType type);

// Returns true if ATen's matmul is faster than matmul() for operands of this dtype, provided that `a` has contiguous
// rows and `out` has the same dtype. With AMX, oneDNN's matmul reaches the rate of the micro-kernel, and matmul()
// reaches half of this rate (bench/RESULTS.md).
bool prefers_aten(at::ScalarType type);

// Computes out [M, N] = a b + addend, for a [M, K] and b [K, N] of one dtype (fp32 or bf16). a and b each have
// contiguous rows or columns (a matrix or its transpose). out has contiguous rows and either the same dtype or fp32.
// The addend, if defined, has out's dtype: either [M, N] with contiguous rows, possibly `out` itself, or [N], added to
// each row. Sums are accumulated in fp32 and rounded once. The order of additions does not depend on the number of
// threads. Requires has_matmul() and, for bf16, an even row stride.
void matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend, const at::Tensor& out);

// Returns the number of bytes that matmul() allocates with the current number of threads. `rounds`: true if sums need a
// buffer, because out is bf16 or the addend is not `out`.
int64_t matmul_bytes(int64_t m, int64_t n, int64_t k, bool a_transposed, at::ScalarType type, bool rounds);

// Returns the number of bytes that oneDNN allocates for ATen's matmul over an inner dimension of `k` if
// prefers_aten(bf16). Measured with LibTorch 2.11 on Sapphire Rapids: at most 0.9 MB per thread for `k` above 3,072.
int64_t aten_matmul_bytes(int64_t k);

}  // namespace mpzero::model::cpu
