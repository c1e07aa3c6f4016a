#include "model/kernels/relative_attention.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>

#include "model/operation/accumulate_type.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::model {
namespace {

at::Tensor wide_heads(const at::Tensor& x) { return x.transpose(1, 2).to(accumulate_type(x.scalar_type())); }

at::Tensor buckets_on(const at::Tensor& x, int64_t queries, int64_t keys, const RelativeAttention& call) {
  // A copy that the host waits for would wait for all work that is queued.
  return relative_buckets(queries, keys, call.table.size(0), call.max_distance, call.causal)
      .to(x.device(), /*non_blocking=*/true);
}

// Of `rows` [heads, T, S + T - 1], a value for each distance in each row: that of each query and key, [heads, T, S].
// The first key is at place T - 1 of the first query's row, and one place before for each further query.
at::Tensor by_query_and_key(const at::Tensor& rows, int64_t keys) {
  const int64_t queries = rows.size(1), distances = rows.size(2);
  return rows.as_strided({rows.size(0), queries, keys}, {queries * distances, distances - 1, 1}, queries - 1);
}

// p [B, heads, T, S]. Masked scores are finite, as in transformers: a row without keys attends to all alike.
at::Tensor relative_probabilities(const at::Tensor& q, const at::Tensor& k, const RelativeAttention& call) {
  const int64_t queries = q.size(2), keys = k.size(2), heads = q.size(1);
  at::Tensor scores = at::matmul(q, k.transpose(2, 3));
  if (call.table.defined()) {
    const at::Tensor buckets = buckets_on(q, queries, keys, call).unsqueeze(1).expand({-1, heads});
    const at::Tensor by_distance = call.table.to(q.scalar_type()).gather(0, buckets).t().unsqueeze(1);
    scores.add_(by_query_and_key(by_distance.expand({heads, queries, -1}).contiguous(), keys));
  }
  constexpr double kMasked = std::numeric_limits<float>::lowest();
  if (call.causal) {
    scores.masked_fill_(at::ones({queries, keys}, q.options().dtype(at::kBool)).triu(1 + keys - queries), kMasked);
  }
  if (call.padding.defined()) scores.masked_fill_(call.padding.unsqueeze(1).unsqueeze(2), kMasked);
  return at::softmax(scores, -1);
}

// ds [B, heads, T, S] -> [buckets, heads]. A product with the buckets as one-hot rows: reproducible on GPUs, where
// adding at indices is not.
at::Tensor table_gradient(const at::Tensor& ds, const RelativeAttention& call) {
  const int64_t heads = ds.size(1), queries = ds.size(2), keys = ds.size(3);
  const at::Tensor rows = at::zeros({heads, queries, queries + keys - 1}, ds.options());
  by_query_and_key(rows, keys).copy_(ds.sum(0));
  const at::Tensor buckets = relative_buckets(queries, keys, call.table.size(0), call.max_distance, call.causal);
  const at::Tensor one_hot = at::arange(call.table.size(0), at::kLong).unsqueeze(1).eq(buckets);
  return at::matmul(one_hot.to(ds.options(), /*non_blocking=*/true), rows.sum(1).t());
}

Operation relative_operation(const at::Tensor& q, const at::Tensor& k) {
  Operation operation{.type = q.scalar_type(), .columns = k.size(1)};
  operation.attention = {q.size(0), q.size(1), q.size(2), k.size(2), q.size(3)};
  return operation;
}

}  // namespace

at::Tensor relative_buckets(int64_t queries, int64_t keys, int64_t buckets, int64_t max_distance, bool causal) {
  const int64_t first = 1 - (causal ? keys : queries);
  const at::Tensor distance = at::arange(first, first + queries + keys - 1, at::kLong);
  if (!causal) buckets /= 2;
  const at::Tensor offset = causal ? at::zeros_like(distance) : distance.gt(0).to(at::kLong).mul(buckets);
  const at::Tensor r = causal ? distance.neg().clamp_min(0) : distance.abs();
  const int64_t exact = buckets / 2;
  const double span = std::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  const at::Tensor far = r.to(at::kFloat).div(exact).log().div(span).mul(buckets - exact).to(at::kLong).add(exact);
  return offset.add(at::where(r.lt(exact), r, far.clamp_max(buckets - 1)));
}

at::Tensor relative_attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const RelativeAttention& call) {
  const OperationScope scope(OperationKind::kRelativeAttentionForward, [&] { return relative_operation(q, k); });
  const at::Tensor p = relative_probabilities(wide_heads(q), wide_heads(k), call);
  dropout_(p, call.dropout);
  return at::matmul(p, wide_heads(v)).transpose(1, 2).to(q.scalar_type()).contiguous();
}

RelativeAttentionGradients relative_attention_backward(const at::Tensor& dout_in, const at::Tensor& q_in,
                                                       const at::Tensor& k_in, const at::Tensor& v_in,
                                                       const RelativeAttention& call) {
  const OperationScope scope(OperationKind::kRelativeAttentionBackward, [&] { return relative_operation(q_in, k_in); });
  const at::Tensor dout = wide_heads(dout_in), q = wide_heads(q_in), k = wide_heads(k_in), v = wide_heads(v_in);
  const at::Tensor p = relative_probabilities(q, k, call);
  const at::Tensor dp = at::matmul(dout, v.transpose(2, 3));
  dropout_(dp, call.dropout);
  const at::Tensor ds = p.mul(dp.sub(dp.mul(p).sum(-1, true)));
  const auto as_input = [&](const at::Tensor& gradient) { return gradient.transpose(1, 2).to(q_in.scalar_type()); };
  dropout_(p, call.dropout);  // not read undropped any more
  return {.dq = as_input(at::matmul(ds, k)),
          .dk = as_input(at::matmul(ds.transpose(2, 3), q)),
          .dv = as_input(at::matmul(p.transpose(2, 3), dout)),
          .dtable = call.table.defined() ? table_gradient(ds, call) : at::Tensor()};
}

}  // namespace mpzero::model
