#include "model/kernels/relative_attention.hpp"

#include <ATen/Context.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "base/device/simulated.hpp"
#include "model/kernels/cpu/dispatch.hpp"
#include "model/operation/accumulate_type.hpp"
#include "model/operation/launch.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::model {
namespace {

at::Tensor wide_heads(const at::Tensor& x) { return x.transpose(1, 2).to(accumulate_type(x.scalar_type())); }

// Caches the buckets across steps, because a run uses few lengths, and computing the buckets takes a dozen operators.
at::Tensor buckets_on(c10::Device device, int64_t queries, int64_t keys, const RelativeAttention& call) {
  const auto make = [&] {
    // A blocking copy would wait for all queued work.
    return relative_buckets(queries, keys, call.table.size(0), call.max_distance, call.causal)
        .to(device, /*non_blocking=*/true);
  };
  if (!device.is_cuda() || queries == 1) return make();  // in generation, the length grows with each token
  using Key = std::tuple<c10::DeviceIndex, int64_t, int64_t, int64_t, int64_t, bool>;
  static std::mutex mutex;
  static auto& kept = *new std::map<Key, at::Tensor>();  // never freed, because CUDA may shut down first
  const std::lock_guard lock(mutex);
  at::Tensor& buckets = kept[Key(device.index(), queries, keys, call.table.size(0), call.max_distance, call.causal)];
  if (!buckets.defined()) buckets = make();
  return buckets;
}

// Returns a view [heads, T, S], by query and key, of `rows` [heads, T, S + T - 1], by query and distance. The first key
// is at index T - 1 in the first query's row, and one index lower in each following row.
at::Tensor by_query_and_key(const at::Tensor& rows, int64_t keys) {
  const int64_t queries = rows.size(1), distances = rows.size(2);
  return rows.as_strided({rows.size(0), queries, keys}, {queries * distances, distances - 1, 1}, queries - 1);
}

// Added to the scores of masked keys. The value is finite, as in transformers, so a query with only masked keys attends
// to all keys equally. It is also finite in bf16 and after multiplication by log2(e).
constexpr double kMasked = -1e30;

// Returns the bias [heads, T, S] in the dtype of q.
at::Tensor bias_by_query_and_key(const at::Tensor& table, const at::Tensor& q, int64_t queries, int64_t keys,
                                 const RelativeAttention& call) {
  const int64_t heads = table.size(1);
  const at::Tensor buckets = buckets_on(q.device(), queries, keys, call).unsqueeze(1).expand({-1, heads});
  const at::Tensor by_distance = table.to(q.scalar_type()).gather(0, buckets);
  if (call.causal) by_distance.narrow(0, keys, queries - 1).fill_(kMasked);
  return by_query_and_key(by_distance.t().unsqueeze(1).expand({heads, queries, -1}).contiguous(), keys);
}

// Returns the probabilities [B, heads, T, S].
at::Tensor relative_probabilities(const at::Tensor& q, const at::Tensor& k, const RelativeAttention& call) {
  const int64_t queries = q.size(2), keys = k.size(2);
  at::Tensor scores = at::matmul(q, k.transpose(2, 3));
  if (call.table.defined()) scores.add_(bias_by_query_and_key(call.table, q, queries, keys, call));
  if (call.padding.defined()) scores.masked_fill_(call.padding.unsqueeze(1).unsqueeze(2), kMasked);
  return at::softmax(scores, -1);
}

// Returns the table's gradient [buckets, heads] for ds [B, heads, T, S]. Multiplies by one-hot buckets, because
// index_add is not reproducible on GPUs.
at::Tensor table_gradient(const at::Tensor& ds, const RelativeAttention& call) {
  const int64_t heads = ds.size(1), queries = ds.size(2), keys = ds.size(3);
  const at::TensorOptions options = ds.options().dtype(accumulate_type(ds.scalar_type()));
  const at::Tensor rows = at::zeros({heads, queries, queries + keys - 1}, options);
  by_query_and_key(rows, keys).copy_(ds.sum(0, false, rows.scalar_type()));
  const at::Tensor buckets = buckets_on(ds.device(), queries, keys, call);
  // Created on the host, because the simulated device does not support arange.
  const at::Tensor all = at::arange(call.table.size(0), at::kLong).to(ds.device(), /*non_blocking=*/true);
  const at::Tensor one_hot = all.unsqueeze(1).eq(buckets);
  return at::matmul(one_hot.to(options), rows.sum(1).t());
}

// Returns true if ATen's memory-efficient attention, which supports a bias, is used. Its gradients are not
// reproducible, its dropout depends on the layout of the run, and its causal mask would leave masked gradients of the
// bias unwritten.
bool is_fused(const at::Tensor& q, const RelativeAttention& call) {
  return uses_gpu_kernels(q.device()) && q.scalar_type() == at::kBFloat16 && q.size(3) % 8 == 0 &&
         call.dropout.rate == 0 && !at::globalContext().deterministicAlgorithms();
}

// Returns the additive bias [B, heads, T, S] with the row alignment of this kernel; undefined if no bias is needed.
at::Tensor fused_bias(const at::Tensor& q, const at::Tensor& k, const RelativeAttention& call) {
  if (!call.table.defined() && !call.padding.defined()) return {};
  constexpr int64_t kAligned = 8;
  const int64_t batch = q.size(0), queries = q.size(1), heads = q.size(2), keys = k.size(1);
  const at::Tensor rows =
      at::empty({call.padding.defined() ? batch : 1, heads, queries, cpu::round_up(keys, kAligned)}, q.options());
  const at::Tensor bias = rows.narrow(3, 0, keys);
  if (call.table.defined()) {
    bias.copy_(bias_by_query_and_key(call.table, q, queries, keys, call));
  } else {
    bias.zero_();
  }
  if (call.padding.defined()) bias.masked_fill_(call.padding.unsqueeze(1).unsqueeze(2), kMasked);
  return bias.expand({batch, -1, -1, -1});
}

constexpr int64_t kNoMask = 0;  // value of ATen's mask enum

std::optional<at::Tensor> if_defined(const at::Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; }

AttentionOutput fused_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const RelativeAttention& call) {
  const at::Tensor bias = fused_bias(q, k, call);
  if (is_simulated(q.device())) {
    const int64_t saved = attention_saved_bytes(AttentionKernel::kEfficient, q.size(0), q.size(2), q.size(1));
    return {at::empty(q.sizes(), q.options()), {at::empty({saved}, q.options().dtype(at::kByte))}};
  }
  auto [out, log_sums, seed, offset, longest_q, longest_k] =
      at::_efficient_attention_forward(q, k, v, if_defined(bias), std::nullopt, std::nullopt, std::nullopt,
                                       std::nullopt, 0.0, kNoMask, /*compute_log_sumexp=*/true, 1.0);
  return {out, {log_sums, seed, offset}};
}

RelativeAttentionGradients fused_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, const AttentionOutput& forward,
                                          const RelativeAttention& call) {
  const at::Tensor bias = fused_bias(q, k, call);
  RelativeAttentionGradients made;
  at::Tensor ds;
  if (is_simulated(q.device())) {
    made.dq = at::empty(q.sizes(), q.options());
    made.dk = at::empty(k.sizes(), k.options());
    made.dv = at::empty(v.sizes(), v.options());
    constexpr int64_t kAligned = 16;  // alignment of keys in rows of the bias gradient
    if (call.table.defined()) {
      ds = at::empty({q.size(0), q.size(2), q.size(1), cpu::round_up(k.size(1), kAligned)}, q.options())
               .narrow(3, 0, k.size(1));
    }
    // Row sums, and the gradient of the queries in fp32.
    const int64_t rows = q.size(0) * q.size(1) * q.size(2);
    borrow(q, rows * (1 + q.size(3)) * static_cast<int64_t>(sizeof(float)));
  } else {
    std::tie(made.dq, made.dk, made.dv, ds) = at::_efficient_attention_backward(
        dout, q, k, v, if_defined(bias), forward.out, std::nullopt, std::nullopt, q.size(1), k.size(1),
        forward.saved[0], 0.0, forward.saved[1], forward.saved[2], kNoMask, call.table.defined(), 1.0);
  }
  if (call.table.defined()) made.dtable = table_gradient(ds, call);
  return made;
}

// `matmuls`: number of matmuls. `passes`: number of times that other kernels read or write the fp32 scores or, if
// fused, the bias or its gradient.
Operation relative_operation(const at::Tensor& q, const at::Tensor& k, bool fused, int matmuls, double passes,
                             double launches) {
  const int64_t batch = q.size(0), queries = q.size(1), heads = q.size(2), head_dim = q.size(3), keys = k.size(1);
  const at::ScalarType type = fused ? q.scalar_type() : at::kFloat;
  const Operation product = on_matmul({.rows = batch * heads * queries,
                                       .columns = keys,
                                       .inner = head_dim,
                                       .b_transposed = true,
                                       .type = type,
                                       .out_type = type},
                                      /*adds=*/false);
  return {.type = q.scalar_type(),
          .sizes = {batch, queries, keys, heads, head_dim},
          .bytes = passes * bytes_of(type, {batch, heads, queries, keys}),
          .flops = matmuls * product.flops,
          .launches = launches,
          .products = product.matmul};
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

AttentionOutput relative_attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const RelativeAttention& call) {
  const OperationScope scope("relative_attention_forward", [&] {
    // Passes over the scores: write, add the bias, mask, softmax, read. If fused, passes over the bias: create (two
    // passes), mask, read.
    return is_fused(q, call) ? relative_operation(q, k, true, 2, 4, 6) : relative_operation(q, k, false, 2, 8, 14);
  });
  if (is_fused(q, call)) return fused_forward(q, k, v, call);
  const at::Tensor p = relative_probabilities(wide_heads(q), wide_heads(k), call);
  dropout_(p, call.dropout);
  return {at::matmul(p, wide_heads(v)).transpose(1, 2).to(q.scalar_type()).contiguous(), {}};
}

RelativeAttentionGradients relative_attention_backward(const at::Tensor& dout_in, const at::Tensor& q_in,
                                                       const at::Tensor& k_in, const at::Tensor& v_in,
                                                       const AttentionOutput& forward, const RelativeAttention& call) {
  const OperationScope scope("relative_attention_backward", [&] {
    // Passes over the scores as in the forward pass, and over their gradient: write, multiply by p and sum, subtract,
    // multiply by p, read twice, sum for the table. If fused, passes over the bias as in the forward pass, and one
    // write and one read of the gradient of the scores.
    return is_fused(q_in, call) ? relative_operation(q_in, k_in, true, 5, 6, 16)
                                : relative_operation(q_in, k_in, false, 5, 21, 28);
  });
  if (is_fused(q_in, call)) return fused_backward(dout_in, q_in, k_in, v_in, forward, call);
  const at::Tensor dout = wide_heads(dout_in), q = wide_heads(q_in), k = wide_heads(k_in), v = wide_heads(v_in);
  const at::Tensor p = relative_probabilities(q, k, call);
  const at::Tensor dp = at::matmul(dout, v.transpose(2, 3));
  dropout_(dp, call.dropout);
  const at::Tensor ds = p.mul(dp.sub(dp.mul(p).sum(-1, true)));
  const auto as_input = [&](const at::Tensor& gradient) { return gradient.transpose(1, 2).to(q_in.scalar_type()); };
  dropout_(p, call.dropout);  // the original p is no longer needed
  return {.dq = as_input(at::matmul(ds, k)),
          .dk = as_input(at::matmul(ds.transpose(2, 3), q)),
          .dv = as_input(at::matmul(p.transpose(2, 3), dout)),
          .dtable = call.table.defined() ? table_gradient(ds, call) : at::Tensor()};
}

}  // namespace mpzero::model
