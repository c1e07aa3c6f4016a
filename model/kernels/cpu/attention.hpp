#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace mpzero::model::cpu {

// Returns true if attention_forward and attention_backward support this dtype and head size on this CPU.
bool has_attention(at::ScalarType type, int64_t head_dim);

// Computes attention in blocks to avoid [T, T] matrices in memory (Dao et al., 2022, arXiv:2205.14135). `q` and `out`
// are [B, T, heads, D], and `k` and `v` are [B, T, kv_heads, D]; dimension D must be contiguous, and other strides are
// arbitrary. `log_sums` ([B, heads, T] fp32) contains the logarithms of the softmax denominators. `ends`: document ends
// in each sequence, from 0 to T; empty if each sequence is one document.
void attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
                       const at::Tensor& log_sums, bool causal, std::span<const int32_t> ends);
// Overwrites dq (same shape as q), dk and dv (same shape as k).
void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& out, const at::Tensor& log_sums, const at::Tensor& dq, const at::Tensor& dk,
                        const at::Tensor& dv, bool causal, std::span<const int32_t> ends);
// Return the number of bytes that attention_forward and attention_backward allocate.
int64_t attention_forward_bytes(int64_t batch, int64_t heads, int64_t key_value_heads, int64_t length, int64_t head_dim,
                                at::ScalarType type);
int64_t attention_backward_bytes(int64_t batch, int64_t heads, int64_t length, int64_t head_dim, at::ScalarType type);

}  // namespace mpzero::model::cpu
