#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model::cpu {

// Whether this CPU has the instructions for matmul() in this dtype (AVX-512 for fp32, AVX512_BF16 or AMX for bf16) and
// oneDNN may use them.
bool has_matmul(at::ScalarType type);

// Whether ATen is faster in this dtype if A has contiguous rows and out is not wider: on AMX, where oneDNN's full
// products reach the micro-kernel's rate and these half of it (bench/RESULTS.md).
bool prefers_aten(at::ScalarType type);

// out [M, N] = a b + addend with a [M, K] and b [K, N] of one dtype (fp32 or bf16), each with contiguous rows or
// columns (a matrix or its transpose); out of that dtype or fp32, with contiguous rows. The addend, if defined, has
// out's dtype: [M, N] with contiguous rows, possibly `out` itself, or [N] for each row.
// Sums are fp32 and rounded once; each element adds its products in the same order for any number of threads. Needs
// has_matmul() and, for bf16, an even row stride.
void matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend, const at::Tensor& out);

// Bytes that matmul() allocates with the current number of threads. `rounds`: sums go through a buffer, because out is
// bf16 or the addend is not `out`.
int64_t matmul_bytes(int64_t m, int64_t n, int64_t k, bool a_transposed, at::ScalarType type, bool rounds);

}  // namespace mpzero::model::cpu
