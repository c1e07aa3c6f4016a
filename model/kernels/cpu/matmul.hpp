#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model::cpu {

// Whether this CPU has the instructions for matmul() of this type, AVX-512 for fp32, and AVX512_BF16 or AMX for bf16,
// and oneDNN may use them.
bool has_matmul(at::ScalarType type);

// Whether to leave a product of this type to ATen where A has contiguous rows and out is not wider: on AMX's tiles,
// where oneDNN's whole products run at the micro-kernel's rate and these at half of it (bench/RESULTS.md).
bool prefers_aten(at::ScalarType type);

// out [M, N] = a b + addend with a [M, K] and b [K, N] of one type (fp32 or bf16), each with rows or columns that are
// contiguous, as a matrix or its transpose has them; out of that type or fp32, with contiguous rows. The addend, where
// defined, has out's type: [M, N] with contiguous rows, possibly `out` itself, or [N] for each row.
// Sums are fp32 and rounded once; each element adds its products in the same order whatever the number of threads.
// Needs has_matmul() and, for bf16, an even distance between rows.
void matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend, const at::Tensor& out);

// Bytes that matmul() allocates with the current number of threads. `rounds`: sums go through a buffer, because out is
// bf16 or something else than out is added to them.
int64_t matmul_bytes(int64_t m, int64_t n, int64_t k, bool a_transposed, at::ScalarType type, bool rounds);

}  // namespace mpzero::model::cpu
