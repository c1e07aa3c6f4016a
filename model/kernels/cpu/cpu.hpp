#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/maximum.h>

#include <cstdint>
#include <optional>

#include "model/kernels/cpu/dropout_mask.hpp"

// CPU implementations of the operations in model/kernels. Each operation makes one pass over its data and computes in
// fp32 on fp32 or bf16 tensors, with vectors of 16 values (AVX-512, AVX2 or baseline). The caller allocates the
// results. Tensors are contiguous unless documented otherwise. Results do not depend on the number of threads.
namespace mpzero::model::cpu {

// Returns the number of threads that run the CPU operations: SimulatedTarget::threads if set, otherwise ATen's number
// of threads.
int64_t threads();

// Returns the number of partial sums that a reduction over `rows` rows writes.
int64_t partial_sums(int64_t rows);

// x, y: [N, H]; weight: [H]; rstd: [N] fp32.
void rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, at::Tensor& y, at::Tensor& rstd);
// `dweight_rows` is [partial_sums(N), H] fp32; `dresidual` and `y` may be undefined.
void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                       const at::Tensor& dresidual, at::Tensor& dx, at::Tensor& dweight_rows, at::Tensor& y);

// Query and key heads of a packed projection [B, T, query + 2 * key_value, D]. D must be a multiple of 32. The norm
// weights [D] are both undefined if the model does not have these norms.
struct Heads {
  int64_t query, key_value;
  const at::Tensor &query_weight, &key_weight;
  double eps;
};
bool has_rope(int64_t head_dim);
// `out` is [B, T, query + key_value, D] with any token stride, possibly a part of `qkv`; `cos` and `sin` are [T, D /
// 2].
void qk_rope_forward(const at::Tensor& qkv, const Heads& heads, const at::Tensor& cos, const at::Tensor& sin,
                     const at::Tensor& out);
// `dq` is [B, T, query, D], and `dk` and `dv` are [B, T, key_value, D]; dimension D must be contiguous, and other
// strides are arbitrary. `dqkv` has the shape of `qkv`. `dquery_weight_rows` and `dkey_weight_rows` are [partial_sums(B
// * T), D] fp32, used only with norms.
void qk_rope_backward(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const at::Tensor& qkv,
                      const Heads& heads, const at::Tensor& cos, const at::Tensor& sin, at::Tensor& dqkv,
                      at::Tensor& dquery_weight_rows, at::Tensor& dkey_weight_rows);

// `gate_up` is [N, 2 * I], and `y` is [N, I].
void swiglu_forward(const at::Tensor& gate_up, at::Tensor& y);
// If y is defined, it receives the output of swiglu_forward (bitwise identical).
void swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up, at::Tensor& d_gate_up, at::Tensor& y);

// logits: [N, V]; targets: [N] int64; losses: [N] fp32. If gradient_scale is set, the gradient overwrites the logits,
// and row i of the gradient is multiplied by weights[i] if `weights` ([N] fp32) is defined. The loss of a target
// outside the vocabulary is NaN.
void cross_entropy(const at::Tensor& logits, const at::Tensor& targets, std::optional<double> gradient_scale,
                   const at::Tensor& weights, at::Tensor& losses);

// `weight_gradient` is [V, H] fp32 or bf16, `rows` is [N] int64, and `values` is [N, H].
void embedding_backward(const at::Tensor& weight_gradient, const at::Tensor& rows, const at::Tensor& values);

// x: [N, C]; sums: [partial_sums(N), C] fp32.
void column_sum(const at::Tensor& x, at::Tensor& sums);

// Applies dropout in place to x (fp32, bf16 or fp64).
void dropout(const at::Tensor& x, const Dropout& dropout);

// Updates `maximum`, an fp32 scalar, to max(maximum, max |x|) in a separate pass. No-op if `maximum` is undefined.
inline void raise_maximum(const at::Tensor& maximum, const at::Tensor& x) {
  if (maximum.defined() && x.numel() > 0 && x.is_cpu())
    maximum.copy_(at::maximum(maximum, x.abs().max().to(at::kFloat)));
}

}  // namespace mpzero::model::cpu
