#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/kernels/attention.hpp"
#include "model/kernels/dropout.hpp"

namespace mpzero::model {

// T5's attention of T queries to S keys (Raffel et al., 2020, arXiv:1910.10683): scores are q k^T, not scaled, plus a
// bias that depends on head and distance. With `causal`, which needs a bias, the queries are the last T of the S
// positions.
struct RelativeAttention {
  bool causal = false;
  at::Tensor table = {};       // [buckets, heads]; undefined: no bias
  int64_t max_distance = 128;  // longer distances share a bucket
  at::Tensor padding = {};     // [B, S] bool: keys that no query attends to; undefined: none
  Dropout dropout = {};        // of the probabilities [B, heads, T, S]
};

// The bucket of each distance key - query, ascending to that of the last key and the first query: [S + T - 1] int64 on
// the CPU, as transformers rounds them. With `causal` all keys after the query share bucket 0.
at::Tensor relative_buckets(int64_t queries, int64_t keys, int64_t buckets, int64_t max_distance, bool causal);

// softmax(q k^T + bias) v: q [B, T, heads, D]; k, v [B, S, heads, D] -> [B, T, heads, D]. On GPUs in bf16, without
// dropout and deterministic algorithms, uses one kernel, with the bias in memory; otherwise ATen's operators in at
// least fp32, with [B, heads, T, S] in memory.
AttentionOutput relative_attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const RelativeAttention& call);

struct RelativeAttentionGradients {
  at::Tensor dq, dk, dv;  // as q, k, v
  at::Tensor dtable;      // as the table, fp32 (fp64 for fp64); undefined without one
};
RelativeAttentionGradients relative_attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k,
                                                       const at::Tensor& v, const AttentionOutput& forward,
                                                       const RelativeAttention& call);

}  // namespace mpzero::model
