#include "model/kernels/qk_rope.hpp"

#include <ATen/ops/empty.h>
#include <ATen/record_function.h>

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cuda.hpp"
#include "model/kernels/rms_norm.hpp"

namespace mpzero::model {
namespace {

bool cpu_takes(const at::Tensor& x) { return cpu::has_kernels(x) && cpu::has_rope(x.size(3)) && x.stride(3) == 1; }

cpu::Heads cpu_heads(HeadCounts heads, const QkNormWeights& norm) {
  return {heads.query, heads.key_value, norm.query, norm.key, norm.eps};
}

QkRopeGradients cpu_backward(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const at::Tensor& qkv,
                             HeadCounts heads, const QkNormWeights& norm, const RopeTables& rope) {
  const int64_t tokens = dq.size(0) * dq.size(1), head_dim = dq.size(3);
  const auto sums = [&] {
    return norm.defined() ? at::empty({cpu::partial_sums(tokens), head_dim}, dq.options().dtype(at::kFloat))
                          : at::Tensor();
  };
  QkRopeGradients result;
  result.dqkv = at::empty({dq.size(0), dq.size(1), heads.query + 2 * heads.key_value, head_dim}, dq.options());
  result.dquery_weight_rows = sums();
  result.dkey_weight_rows = sums();
  cpu::qk_rope_backward(dq, dk, dv, qkv, cpu_heads(heads, norm), rope.cos, rope.sin, result.dqkv,
                        result.dquery_weight_rows, result.dkey_weight_rows);
  return result;
}

}  // namespace

at::Tensor qk_rope_forward(at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm, const RopeTables& rope) {
  RECORD_FUNCTION(norm.defined() ? "mpzero::qk_norm_rope_forward" : "mpzero::qk_rope_forward",
                  (std::vector<c10::IValue>{qkv, heads.query, heads.key_value}));
  if (!cuda::has_kernels(qkv) && !cpu_takes(qkv)) return reference::qk_rope_forward(qkv, heads, norm, rope);
  const int64_t rotated_heads = heads.query + heads.key_value;
  at::Tensor out =
      norm.defined() ? at::empty({qkv.size(0), qkv.size(1), rotated_heads, qkv.size(3)}, qkv.options()) : qkv;
  if (cuda::has_kernels(qkv)) {
    cuda::qk_rope_forward(qkv, heads, norm, rope, out);
  } else {
    cpu::qk_rope_forward(qkv, cpu_heads(heads, norm), rope.cos, rope.sin, out);
  }
  return norm.defined() ? out : qkv.narrow(2, 0, rotated_heads);
}

QkRopeGradients qk_rope_backward(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv,
                                 const at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm,
                                 const RopeTables& rope, const at::Tensor& maximum) {
  RECORD_FUNCTION(norm.defined() ? "mpzero::qk_norm_rope_backward" : "mpzero::qk_rope_backward",
                  (std::vector<c10::IValue>{qkv, heads.query, heads.key_value}));
  if (cuda::has_kernels(dq)) return cuda::qk_rope_backward(dq, dk, dv, qkv, heads, norm, rope, maximum);
  const bool on_cpu = cpu_takes(dq) && dk.stride(3) == 1 && dv.stride(3) == 1;
  QkRopeGradients made = on_cpu ? cpu_backward(dq, dk, dv, qkv, heads, norm, rope)
                                : reference::qk_rope_backward(dq, dk, dv, qkv, heads, norm, rope);
  cpu::raise_maximum(maximum, made.dqkv);
  return made;
}

namespace reference {
namespace {

// out = x rotated forwards, or backwards with `inverse`. x and out [B, T, heads, D] may be the same.
void rotate(const at::Tensor& x, const RopeTables& rope, bool inverse, const at::Tensor& out) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor cos = rope.cos.unsqueeze(1);
  const at::Tensor sin = inverse ? rope.sin.unsqueeze(1).neg() : rope.sin.unsqueeze(1);
  const at::Tensor first = x.narrow(-1, 0, half);
  const at::Tensor second = x.narrow(-1, half, half);
  const at::Tensor turned_first = first.mul(cos).sub_(second.mul(sin));
  out.narrow(-1, half, half).copy_(second.mul(cos).add_(first.mul(sin)));
  out.narrow(-1, 0, half).copy_(turned_first);
}

}  // namespace

at::Tensor qk_rope_forward(at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm, const RopeTables& rope) {
  at::Tensor q = qkv.narrow(2, 0, heads.query);
  at::Tensor k = qkv.narrow(2, heads.query, heads.key_value);
  if (norm.defined()) {
    q = reference::rms_norm_forward(q, norm.query, norm.eps).y;
    k = reference::rms_norm_forward(k, norm.key, norm.eps).y;
  }
  const int64_t rotated_heads = heads.query + heads.key_value;
  at::Tensor out = norm.defined() ? at::empty({qkv.size(0), qkv.size(1), rotated_heads, qkv.size(3)}, qkv.options())
                                  : qkv.narrow(2, 0, rotated_heads);
  rotate(q, rope, false, out.narrow(2, 0, heads.query));
  rotate(k, rope, false, out.narrow(2, heads.query, heads.key_value));
  return out;
}

QkRopeGradients qk_rope_backward(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv,
                                 const at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm,
                                 const RopeTables& rope) {
  QkRopeGradients result;
  result.dqkv = at::empty({dq.size(0), dq.size(1), heads.query + 2 * heads.key_value, dq.size(3)}, dq.options());
  at::Tensor dq_out = result.dqkv.narrow(2, 0, heads.query);
  at::Tensor dk_out = result.dqkv.narrow(2, heads.query, heads.key_value);
  result.dqkv.narrow(2, heads.query + heads.key_value, heads.key_value).copy_(dv);
  rotate(dq, rope, true, dq_out);
  rotate(dk, rope, true, dk_out);
  if (!norm.defined()) return result;

  const auto through_norm = [&](const at::Tensor& d, const at::Tensor& x, const at::Tensor& weight) {
    const at::Tensor rstd = reference::rms_norm_forward(x, weight, norm.eps).rstd;
    const RmsNormGradients gradients = reference::rms_norm_backward(d, x, weight, rstd, at::Tensor());
    d.copy_(gradients.dx);
    return gradients.dweight_rows;
  };
  result.dquery_weight_rows = through_norm(dq_out, qkv.narrow(2, 0, heads.query), norm.query);
  result.dkey_weight_rows = through_norm(dk_out, qkv.narrow(2, heads.query, heads.key_value), norm.key);
  return result;
}

}  // namespace reference
}  // namespace mpzero::model
