#include "model/kernels/qk_rope.hpp"

#include <ATen/ops/empty.h>

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cuda.hpp"
#include "model/kernels/rms_norm.hpp"
#include "model/operation/launch.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::model {
namespace {

// The CPU kernels require dense heads of supported sizes.
bool suits_rope(const at::Tensor& x) {
  if (!has_kernels(x)) return false;
  return uses_gpu_kernels(x.device()) || (cpu::has_rope(x.size(3)) && x.stride(3) == 1);
}

cpu::Heads cpu_heads(HeadCounts heads, const QkNormWeights& norm) {
  return {heads.query, heads.key_value, norm.query, norm.key, norm.eps};
}

// The forward pass reads and writes q and k. The backward pass reads dq, dk, dv and, with norms, the inputs of the
// norms, and writes the gradient of the packed projection.
Operation on_heads(const at::Tensor& x, HeadCounts heads, bool norm, bool backward) {
  const int64_t rotated = heads.query + heads.key_value, packed = rotated + heads.key_value;
  const int64_t moved = backward ? 2 * packed + (norm ? rotated : 0) : 2 * rotated;
  const char* const kins[2][2] = {{"qk_norm_rope_forward", "qk_norm_rope_backward"},
                                  {"qk_rope_forward", "qk_rope_backward"}};
  return {.type = x.scalar_type(),
          .sizes = {x.size(0), x.size(1), heads.query, heads.key_value, x.size(3)},
          .bytes = bytes_of(x.scalar_type(), {x.size(0), x.size(1), moved, x.size(3)}),
          .kin = kins[norm][backward]};
}

}  // namespace

at::Tensor qk_rope_forward(at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm, const RopeTables& rope) {
  const OperationScope scope(norm.defined() ? "qk_norm_rope_forward" : "qk_rope_forward",
                             [&] { return on_heads(qkv, heads, norm.defined(), false); });
  if (!suits_rope(qkv)) return reference::qk_rope_forward(qkv, heads, norm, rope);
  const int64_t rotated_heads = heads.query + heads.key_value;
  at::Tensor out =
      norm.defined() ? at::empty({qkv.size(0), qkv.size(1), rotated_heads, qkv.size(3)}, qkv.options()) : qkv;
  launch(
      qkv, [&] { cuda::qk_rope_forward(qkv, heads, norm, rope, out); },
      [&] { cpu::qk_rope_forward(qkv, cpu_heads(heads, norm), rope.cos, rope.sin, out); });
  return norm.defined() ? out : qkv.narrow(2, 0, rotated_heads);
}

QkRopeGradients qk_rope_backward(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv,
                                 const at::Tensor& qkv, HeadCounts heads, const QkNormWeights& norm,
                                 const RopeTables& rope, const at::Tensor& maximum) {
  const OperationScope scope(norm.defined() ? "qk_norm_rope_backward" : "qk_rope_backward",
                             [&] { return on_heads(qkv, heads, norm.defined(), true); });
  if (!suits_rope(dq) || !suits_rope(dk) || !suits_rope(dv)) {
    QkRopeGradients made = reference::qk_rope_backward(dq, dk, dv, qkv, heads, norm, rope);
    cpu::raise_maximum(maximum, made.dqkv);
    return made;
  }
  QkRopeGradients made;
  made.dqkv = at::empty({dq.size(0), dq.size(1), heads.query + 2 * heads.key_value, dq.size(3)}, dq.options());
  if (norm.defined()) {
    made.dquery_weight_rows = partial_sums(dq, dq.size(0) * dq.size(1), dq.size(3));
    made.dkey_weight_rows = partial_sums(dq, dq.size(0) * dq.size(1), dq.size(3));
  }
  launch(
      dq, [&] { cuda::qk_rope_backward(dq, dk, dv, qkv, heads, norm, rope, maximum, made); },
      [&] {
        cpu::qk_rope_backward(dq, dk, dv, qkv, cpu_heads(heads, norm), rope.cos, rope.sin, made.dqkv,
                              made.dquery_weight_rows, made.dkey_weight_rows);
        cpu::raise_maximum(maximum, made.dqkv);
      });
  return made;
}

namespace reference {
namespace {

// Rotates x forward, or backward with `inverse`, and writes to out. x and out [B, T, heads, D] may be the same tensor.
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
