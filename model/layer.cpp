// One decoder layer, forward and backward.
#include "model/layer.hpp"

#include <ATen/ops/zeros_like.h>

#include <utility>

#include "model/decoder.hpp"
#include "model/kernels/column_sum.hpp"
#include "model/kernels/rms_norm.hpp"
#include "model/kernels/swiglu.hpp"
#include "model/rope_table.hpp"

namespace mpzero::model {
at::Tensor layer_forward(const Layer& layer, const at::Tensor& x, LayerActivations& s, fp8::Forms inputs,
                         const Attend& attend) {
  const auto& [config, layout, matmuls, casts, w, rope, heads] = layer;
  const int64_t batch = x.size(0), length = x.size(1), hidden = x.size(2);
  s.x = x;
  const at::Tensor rows = x.reshape({-1, hidden});
  at::Tensor maximum = casts.maximum(LayerProduct::kQkv, x.device());
  RmsNormOutput input_norm = rms_norm_forward(rows, w.input_norm, config.rms_norm_eps, maximum);
  s.normed = casts.input(LayerProduct::kQkv, std::exchange(input_norm.y, {}), inputs, maximum);
  s.rstd = input_norm.rstd;
  s.qkv = (w.qkv_bias.defined() ? matmuls.forward_bias(s.normed, w.qkv, w.qkv_bias) : matmuls.forward(s.normed, w.qkv))
              .view({batch, length, heads.query + 2 * heads.key_value, config.head_dim});
  s.normed.drop_rows();
  s.qk = qk_rope_forward(s.qkv, heads, w.qk_norm, rope);
  const at::Tensor q = s.qk.narrow(2, 0, heads.query), k = s.qk.narrow(2, heads.query, heads.key_value);
  const at::Tensor v = s.qkv.narrow(2, heads.query + heads.key_value, heads.key_value);
  s.attended = attend ? attend(q, k, v) : attention_forward(choose_attention_kernel(q, s.mask), q, k, v, s.mask);
  // Attention's backward reads its output itself, so what the product reads is not kept.
  const at::Tensor attended = s.attended.out.reshape({-1, config.query_size()});
  s.h = matmuls.forward_add(
      casts.input(LayerProduct::kOutput, attended, fp8::Forms::kRows, at::Tensor(), &s.attended_maximum), w.output,
      rows);
  maximum = casts.maximum(LayerProduct::kGateUp, x.device());
  RmsNormOutput h_norm = rms_norm_forward(s.h, w.post_attention_norm, config.rms_norm_eps, maximum);
  s.h_normed = casts.input(LayerProduct::kGateUp, std::exchange(h_norm.y, {}), inputs, maximum);
  s.h_rstd = h_norm.rstd;
  s.gate_up = matmuls.forward(s.h_normed, w.gate_up);
  s.h_normed.drop_rows();
  maximum = casts.maximum(LayerProduct::kDown, x.device());
  s.activated = casts.input(LayerProduct::kDown, swiglu_forward(s.gate_up, maximum), inputs, maximum);
  at::Tensor y = matmuls.forward_add(s.activated, w.down, s.h).view(x.sizes());
  s.activated.drop_rows();
  return y;
}

namespace {

// Backward releases each activation after its last use. A weight gradient comes after the pass that may recompute its
// input.

// dy [N, H] -> dh [N, H], through the MLP and its residual connection. `maximum_of_dh`: see rms_norm_backward.
at::Tensor mlp_backward(const Layer& layer, const at::Tensor& dy, LayerActivations& s, Gradients gradients,
                        RowSums& sums, const at::Tensor& maximum_of_dh) {
  const auto& [config, layout, matmuls, casts, w, rope, heads] = layer;
  const Operand d = casts.gradient(LayerProduct::kDown, dy);
  const at::Tensor maximum = casts.maximum(LayerProduct::kGateUp, dy.device());
  at::Tensor d_activated = matmuls.data_gradient(d, w.down), d_gate_up;
  if (s.activated.defined()) {
    d_gate_up = swiglu_backward(d_activated, s.gate_up, maximum);
  } else {
    const at::Tensor of_y = maximum.defined() ? at::zeros_like(maximum) : at::Tensor();
    SwigluRecomputed both = swiglu_backward_recompute(d_activated, s.gate_up, maximum, of_y);
    d_gate_up = std::move(both.d_gate_up);
    s.activated = casts.input(LayerProduct::kDown, std::exchange(both.y, {}), fp8::Forms::kColumns, of_y);
  }
  d_activated.reset();
  s.gate_up.reset();
  gradients[layout[LayerRole::kDown]].add_matmul(d, s.activated, &matmuls);
  s.activated.reset();

  const Operand d_mlp = casts.gradient(LayerProduct::kGateUp, std::exchange(d_gate_up, {}), maximum);
  RmsNormGradients norm = rms_norm_backward(matmuls.data_gradient(d_mlp, w.gate_up), s.h, w.post_attention_norm,
                                            s.h_rstd, dy, /*with_y=*/!s.h_normed.defined(), maximum_of_dh);
  s.h.reset();
  sums.add(gradients[layout[LayerRole::kPostAttentionNorm]], norm.dweight_rows);
  if (norm.y.defined()) {
    s.h_normed = casts.input(LayerProduct::kGateUp, std::exchange(norm.y, {}), fp8::Forms::kColumns);
  }
  add_matmul(gradients.subspan(layout[LayerRole::kGate], 2), d_mlp, s.h_normed, &matmuls);
  s.h_normed.reset();
  return norm.dx;
}

// d_attended [N, heads * D] -> the gradient of the packed projection [N, (heads + 2 * kv_heads) * D]. `maximum`: see
// qk_rope_backward.
at::Tensor heads_backward(const Layer& layer, at::Tensor d_attended, LayerActivations& s, Gradients gradients,
                          RowSums& sums, const at::Tensor& maximum) {
  const auto& [config, layout, matmuls, casts, w, rope, heads] = layer;
  if (!s.qk.defined()) s.qk = qk_rope_forward(s.qkv, heads, w.qk_norm, rope);
  const at::Tensor q = s.qk.narrow(2, 0, heads.query);
  const AttentionGradients attention =
      attention_backward(choose_attention_kernel(q, s.mask), d_attended.view(s.attended.out.sizes()), q,
                         s.qk.narrow(2, heads.query, heads.key_value),
                         s.qkv.narrow(2, heads.query + heads.key_value, heads.key_value), s.attended, s.mask);
  d_attended.reset();
  s.attended = {};
  const QkRopeGradients qk =
      qk_rope_backward(attention.dq, attention.dk, attention.dv, s.qkv, heads, w.qk_norm, rope, maximum);
  if (w.qk_norm.defined()) {
    sums.add(gradients[layout[LayerRole::kQueryNorm]], qk.dquery_weight_rows);
    sums.add(gradients[layout[LayerRole::kKeyNorm]], qk.dkey_weight_rows);
  }
  s.qk.reset();
  s.qkv.reset();
  return qk.dqkv.view({-1, config.query_size() + 2 * config.key_value_size()});
}

// dh [N, H] -> dx [N, H], through attention and its residual connection. `maximum_of_dh`: of dh, where it is known.
at::Tensor attention_part_backward(const Layer& layer, const at::Tensor& dh, LayerActivations& s, Gradients gradients,
                                   RowSums& sums, const at::Tensor& maximum_of_dh) {
  const auto& [config, layout, matmuls, casts, w, rope, heads] = layer;
  Operand d = casts.gradient(LayerProduct::kOutput, dh, maximum_of_dh);
  gradients[layout[LayerRole::kOutput]].add_matmul(
      d,
      casts.input(LayerProduct::kOutput, s.attended.out.reshape({-1, config.query_size()}), fp8::Forms::kColumns,
                  s.attended_maximum),
      &matmuls);
  at::Tensor d_attended = matmuls.data_gradient(d, w.output);
  d.reset();
  const at::Tensor maximum = casts.maximum(LayerProduct::kQkv, dh.device());
  at::Tensor dqkv = heads_backward(layer, std::move(d_attended), s, gradients, sums, maximum);
  if (w.qkv_bias.defined()) {
    sums.add(gradients.subspan(layout[LayerRole::kQueryBias], 3), column_sum_rows(dqkv));
  }
  const Operand d_heads = casts.gradient(LayerProduct::kQkv, std::exchange(dqkv, {}), maximum);
  RmsNormGradients norm =
      rms_norm_backward(matmuls.data_gradient(d_heads, w.qkv), s.x.reshape({-1, config.hidden_size}), w.input_norm,
                        s.rstd, dh, /*with_y=*/!s.normed.defined());
  sums.add(gradients[layout[LayerRole::kInputNorm]], norm.dweight_rows);
  if (norm.y.defined()) s.normed = casts.input(LayerProduct::kQkv, std::exchange(norm.y, {}), fp8::Forms::kColumns);
  add_matmul(gradients.subspan(layout[LayerRole::kQuery], 3), d_heads, s.normed, &matmuls);
  return norm.dx;
}

}  // namespace

at::Tensor Decoder::layer_forward(Weights layer, const at::Tensor& x, LayerActivations* activations,
                                  Recompute recompute, const AttentionMask& mask) const {
  LayerActivations saved;
  saved.mask = mask;
  const LayerCasts of_layer = casts(layer);
  const bool keeps_inputs = activations != nullptr && recompute == Recompute::kNone;
  at::Tensor y = model::layer_forward(
      {config_, layout_, *matmuls_, of_layer,
       by_role(layer, layout_, config_.rms_norm_eps, of_layer, fp8::Forms::kRows), rope_->get(x, mask)},
      x, saved, keeps_inputs ? fp8::Forms::kBoth : fp8::Forms::kRows);
  if (activations == nullptr) return y;
  saved.drop(recompute);
  *activations = std::move(saved);
  return y;
}

at::Tensor Decoder::layer_backward(Weights weights, const at::Tensor& dy, LayerActivations& activations,
                                   Gradients gradients) const {
  LayerActivations saved = std::exchange(activations, {});
  // gate_up is missing only if the whole forward has to run again.
  const bool runs_forward = !saved.gate_up.defined();
  const LayerCasts of_layer = casts(weights);
  const Layer layer{config_,
                    layout_,
                    *matmuls_,
                    of_layer,
                    by_role(weights, layout_, config_.rms_norm_eps, of_layer,
                            runs_forward ? fp8::Forms::kBoth : fp8::Forms::kColumns),
                    rope_->get(dy, saved.mask)};
  if (runs_forward) model::layer_forward(layer, at::Tensor(saved.x), saved, fp8::Forms::kBoth);
  RowSums sums;
  const at::Tensor maximum_of_dh = of_layer.maximum(LayerProduct::kOutput, dy.device());
  const at::Tensor dh =
      mlp_backward(layer, dy.reshape({-1, config_.hidden_size}), saved, gradients, sums, maximum_of_dh);
  at::Tensor dx = attention_part_backward(layer, dh, saved, gradients, sums, maximum_of_dh).view(dy.sizes());
  sums.run();
  return dx;
}

}  // namespace mpzero::model
