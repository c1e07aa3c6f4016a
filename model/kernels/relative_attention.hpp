#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/kernels/attention.hpp"
#include "model/kernels/dropout.hpp"

namespace mpzero::model {

// T5's attention from T queries to S keys (Raffel et al., 2020, arXiv:1910.10683). Scores are q k^T without scaling,
// plus a bias that depends on the head and the distance. `causal` requires a bias; the queries are then the last T of
// the S positions.
struct RelativeAttention {
  bool causal = false;
  at::Tensor table = {};       // [buckets, heads]; undefined: no bias
  int64_t max_distance = 128;  // larger distances share a bucket
  at::Tensor padding = {};     // [B, S] bool: true for masked keys; undefined: no mask
  Dropout dropout = {};        // dropout of the probabilities [B, heads, T, S]
};

// Returns the buckets [S + T - 1] (int64 on the CPU) of the distances (key - query), in ascending order of distance.
// Rounding matches transformers. If `causal` is true, all keys after the query share bucket 0.
at::Tensor relative_buckets(int64_t queries, int64_t keys, int64_t buckets, int64_t max_distance, bool causal);

// Computes softmax(q k^T + bias) v, [B, T, heads, D], for q [B, T, heads, D] and k, v [B, S, heads, D]. For bf16 on
// GPUs, uses one fused kernel with the bias in memory, unless dropout or deterministic algorithms are enabled. In all
// other cases, uses ATen operators in at least fp32, with [B, heads, T, S] in memory.
AttentionOutput relative_attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const RelativeAttention& call);

struct RelativeAttentionGradients {
  at::Tensor dq, dk, dv;  // same shapes as q, k, v
  at::Tensor dtable;      // same shape as the table, fp32 (fp64 for fp64 inputs); undefined without a table
};
RelativeAttentionGradients relative_attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k,
                                                       const at::Tensor& v, const AttentionOutput& forward,
                                                       const RelativeAttention& call);

}  // namespace mpzero::model
