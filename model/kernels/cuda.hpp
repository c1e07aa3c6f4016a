#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>

#include "model/kernels/cpu/dropout_mask.hpp"
#include "model/kernels/qk_rope.hpp"
#include "model/kernels/row_sum.hpp"

// Fused CUDA implementations of the functions in model/kernels/*.hpp. Kernels run on the current stream of the tensors'
// device. The caller allocates the results. Matrices [N, H] are contiguous.
namespace mpzero::model::cuda {

// Returns the number of multiprocessors of the current device.
int multiprocessor_count();

void rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& maximum,
                      at::Tensor& y, at::Tensor& rstd);
// dresidual and y may be undefined. Returns RmsNormGradients::dweight_rows.
at::Tensor rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& rstd, const at::Tensor& dresidual, const at::Tensor& maximum,
                             at::Tensor& dx, at::Tensor& y);
// Writes the results to the first heads of `out` [B, T, heads, D], which are the query and key heads. `out` may be qkv.
void qk_rope_forward(const at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm, const RopeTables& rope,
                     at::Tensor& out);
// Writes the gradient of qkv to out.dqkv, and allocates the gradients of the norm weights in `out`.
void qk_rope_backward(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const at::Tensor& qkv,
                      HeadCounts heads, const QkNormWeights& norm, const RopeTables& rope, const at::Tensor& maximum,
                      QkRopeGradients& out);
at::Tensor column_sum_rows(const at::Tensor& x);
void row_sums(std::span<const RowSum> sums);
void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& maximum, at::Tensor& y);
// If y is defined, it receives the output of swiglu_forward.
void swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up, const at::Tensor& maximum,
                     const at::Tensor& maximum_of_y, at::Tensor& d_gate_up, at::Tensor& y);
// If gradient_scale is set, the gradient overwrites the logits, and row i of the gradient is multiplied by weights[i]
// if `weights` is defined.
void cross_entropy(at::Tensor& logits, const at::Tensor& targets, std::optional<double> gradient_scale,
                   const at::Tensor& weights, at::Tensor& losses);
void dropout(const at::Tensor& x, const Dropout& dropout);
// order: row indices 0, 1, ... in int64.
void embedding_backward(const at::Tensor& weight_gradient, const at::Tensor& rows, const at::Tensor& order,
                        const at::Tensor& values);

}  // namespace mpzero::model::cuda
