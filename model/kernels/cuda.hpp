#pragma once

#include <ATen/core/Tensor.h>

#include "model/kernels/qk_rope.hpp"
#include "model/kernels/rms_norm.hpp"
#include "model/kernels/row_sum.hpp"
#include "model/kernels/swiglu.hpp"

// The fused CUDA kernels that implement the functions of the same names in model/kernels/*.hpp, which document the
// results. They run on the current stream of the tensors' device.
namespace mpzero::model::cuda {

// fp32 and bf16 tensors on a GPU; everything else uses the reference.
bool has_kernels(const at::Tensor& tensor);

// Number of multiprocessors of the current device.
int multiprocessor_count();

RmsNormOutput rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& maximum);
RmsNormGradients rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                   const at::Tensor& rstd, const at::Tensor& dresidual, bool with_y,
                                   const at::Tensor& maximum);
// Into `out` [B, T, heads, D], whose first heads are the queries and keys; it may be qkv.
void qk_rope_forward(const at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm, const RopeTables& rope,
                     at::Tensor& out);
QkRopeGradients qk_rope_backward(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv,
                                 const at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm,
                                 const RopeTables& rope, const at::Tensor& maximum);
at::Tensor column_sum_rows(const at::Tensor& x);
void row_sums(std::span<const RowSum> sums);
at::Tensor swiglu_forward(const at::Tensor& gate_up, const at::Tensor& maximum);
at::Tensor swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up, const at::Tensor& maximum);
SwigluRecomputed swiglu_backward_recompute(const at::Tensor& dy, const at::Tensor& gate_up, const at::Tensor& maximum,
                                           const at::Tensor& maximum_of_y);
at::Tensor cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets);
at::Tensor cross_entropy_forward_backward_(at::Tensor& logits, const at::Tensor& targets, double gradient_scale,
                                           const at::Tensor& weights);
void embedding_backward(const at::Tensor& weight_gradient, const at::Tensor& rows, const at::Tensor& values);

}  // namespace mpzero::model::cuda
