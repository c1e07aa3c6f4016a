#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model {

// Head counts of a packed projection [B, T, query + 2 * key_value, D] with queries, keys and values.
struct HeadCounts {
  int64_t query = 0;
  int64_t key_value = 0;
};

// Weights [D] of the RMS norms of query and key heads; undefined if the model does not have these norms.
struct QkNormWeights {
  at::Tensor query;
  at::Tensor key;
  double eps = 0;
  bool defined() const { return query.defined(); }
};

// Cosines and sines [T, D / 2] of the rotary angles, in the dtype of the activations.
struct RopeTables {
  at::Tensor cos;
  at::Tensor sin;
};

// Normalizes and rotates the queries and keys of `qkv`. Returns [B, T, query + key_value, D]. With norms, the result is
// a new tensor, because the backward pass reads the input of the norms. Without norms, `qkv` is rotated in place, and
// the result is a view of `qkv`. The pair (x[i], x[i + D/2]) is rotated by position * frequency i, like transformers'
// rotate_half (Su et al., 2021, arXiv:2104.09864).
at::Tensor qk_rope_forward(at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm, const RopeTables& rope);

struct QkRopeGradients {
  at::Tensor dqkv;                // [B, T, query + 2 * key_value, D]
  at::Tensor dquery_weight_rows;  // [R, D], fp32 (fp64 for fp64 inputs): partial sums; undefined without norms
  at::Tensor dkey_weight_rows;    // see dquery_weight_rows
};

// Computes the gradient of the packed projection. dq [B, T, query, D], dk [B, T, key_value, D]: gradients of the
// outputs of qk_rope_forward. dv [B, T, key_value, D]: gradient of the values. `qkv`: input of qk_rope_forward, read
// only with norms. `maximum`: if defined, an fp32 scalar that is updated to max(maximum, max |dqkv|); NaN propagates.
QkRopeGradients qk_rope_backward(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv,
                                 const at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm,
                                 const RopeTables& rope, const at::Tensor& maximum = {});

// Reference implementations with ATen operators, for any device.
namespace reference {
at::Tensor qk_rope_forward(at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm, const RopeTables& rope);
QkRopeGradients qk_rope_backward(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv,
                                 const at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm,
                                 const RopeTables& rope);
}  // namespace reference

}  // namespace mpzero::model
