#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace mpzero::model::cpu {

// Whether attention_forward and attention_backward run here for this type and size of a head.
bool has_attention(at::ScalarType type, int64_t head_dim);

// Attention in blocks, so that no matrix [T, T] is in memory (Dao et al., 2022, arXiv:2205.14135): q and out
// [B, T, heads, D], k and v [B, T, kv_heads, D], with any distances but of D; log_sums [B, heads, T] fp32: the
// logarithms of the softmax's denominators. `ends`: of the documents of each sequence, from 0 to T; empty: each is one.
void attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
                       const at::Tensor& log_sums, bool causal, std::span<const int32_t> ends);
// dq as q; dk, dv as k. All are written.
void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& out, const at::Tensor& log_sums, const at::Tensor& dq, const at::Tensor& dk,
                        const at::Tensor& dv, bool causal, std::span<const int32_t> ends);
// Bytes that attention_backward allocates.
int64_t attention_backward_bytes(int64_t batch, int64_t heads, int64_t length, int64_t head_dim, at::ScalarType type);

}  // namespace mpzero::model::cpu
