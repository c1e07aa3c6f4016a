#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model {

// A packed projection [B, T, query_heads + 2 * key_value_heads, D]: queries, keys, values.
struct HeadCounts {
  int64_t query = 0;
  int64_t key_value = 0;
};

// Weights [D] of the RMS norms over each query and key head; undefined if the model has none.
struct QkNormWeights {
  at::Tensor query;
  at::Tensor key;
  double eps = 0;
  bool defined() const { return query.defined(); }
};

// cos and sin [T, D/2] of the rotary angles in the activations' dtype.
struct RopeTables {
  at::Tensor cos;
  at::Tensor sin;
};

// Normalizes (if there are norms) and rotates the queries and keys of `qkv`: -> [B, T, query + key_value, D]. With
// norms the result is new memory, because the backward pass reads their input; without norms `qkv` itself is rotated,
// and the result is a view of it. The pair (x[i], x[i + D/2]) is rotated by position * frequency i, the layout of
// transformers' rotate_half (Su et al., 2021, arXiv:2104.09864).
at::Tensor qk_rope_forward(at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm, const RopeTables& rope);

struct QkRopeGradients {
  at::Tensor dqkv;                // [B, T, query + 2 * key_value, D]
  at::Tensor dquery_weight_rows;  // [R, D], fp32 (fp64 for fp64): partial sums over R of the gradient; or undefined
  at::Tensor dkey_weight_rows;    // likewise
};

// dq [B, T, query, D], dk and dv [B, T, key_value, D]: gradients of the outputs of qk_rope_forward and of the values in
// `qkv`, which is qk_rope_forward's input (read only if there are norms). `maximum`, if defined, is an fp32 scalar that
// is raised to the largest magnitude of dqkv (NaN if dqkv contains NaN).
QkRopeGradients qk_rope_backward(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv,
                                 const at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm,
                                 const RopeTables& rope, const at::Tensor& maximum = {});

// The same with ATen operators, on any device.
namespace reference {
at::Tensor qk_rope_forward(at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm, const RopeTables& rope);
QkRopeGradients qk_rope_backward(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv,
                                 const at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm,
                                 const RopeTables& rope);
}  // namespace reference

}  // namespace mpzero::model
