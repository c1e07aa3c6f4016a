// One decoder layer, forward and backward: x + attention(norm(x)), then h + mlp(norm(h)).
#include "model/decoder.hpp"
#include "model/kernels/attention.hpp"
#include "model/kernels/column_sum.hpp"
#include "model/kernels/qk_rope.hpp"
#include "model/kernels/rms_norm.hpp"
#include "model/kernels/swiglu.hpp"
#include "model/matmuls.hpp"
#include "model/rope_table.hpp"
#include "model/rows.hpp"

namespace mpzero::model {
namespace {

// The activations of a layer. N = B * T tokens; I: intermediate size. Undefined are those that Recompute::kSelective
// drops: what one pass over its neighbours makes again.
struct Saved {
  at::Tensor x;              // [B, T, H], the layer's input
  at::Tensor normed;         // [N, H], x after its norm; dropped
  at::Tensor rstd;           // [N]
  at::Tensor qkv;            // [B, T, heads + 2 * kv_heads, D], before norms and rotation
  at::Tensor qk;             // [B, T, heads + kv_heads, D], after them; dropped, but without norms a view of qkv
  AttentionOutput attended;  // out [B, T, heads, D]
  at::Tensor h;              // [N, H], x plus attention
  at::Tensor h_normed;       // [N, H]; dropped
  at::Tensor h_rstd;         // [N]
  at::Tensor gate_up;        // [N, 2I]
  at::Tensor activated;      // [N, I]; dropped

  void drop() {
    if (!qk.is_alias_of(qkv)) qk.reset();
    normed.reset();
    h_normed.reset();
    activated.reset();
  }
  std::vector<at::Tensor> pack() const {
    std::vector<at::Tensor> packed{x, normed, rstd, qkv, qk, attended.out, h, h_normed, h_rstd, gate_up, activated};
    packed.insert(packed.end(), attended.saved.begin(), attended.saved.end());
    return packed;
  }
  static Saved unpack(std::vector<at::Tensor> p) {
    return {p[0], p[1], p[2], p[3], p[4], {p[5], {p.begin() + 11, p.end()}}, p[6], p[7], p[8], p[9], p[10]};
  }
};

// A layer's weights by what they do.
struct LayerWeights {
  at::Tensor input_norm, qkv, output, post_attention_norm, gate_up, down;
  at::Tensor qkv_bias;  // undefined where the model has none
  QkNormWeights qk_norm;
};

LayerWeights by_role(Weights layer, const LayerLayout& layout, double eps) {
  const auto optional = [&](LayerRole role) { return layout.has(role) ? layer[layout[role]] : at::Tensor(); };
  return {.input_norm = layer[layout[LayerRole::kInputNorm]],
          .qkv = join_rows(layer.subspan(layout[LayerRole::kQuery], 3)),
          .output = layer[layout[LayerRole::kOutput]],
          .post_attention_norm = layer[layout[LayerRole::kPostAttentionNorm]],
          .gate_up = join_rows(layer.subspan(layout[LayerRole::kGate], 2)),
          .down = layer[layout[LayerRole::kDown]],
          .qkv_bias = layout.has(LayerRole::kQueryBias) ? join_rows(layer.subspan(layout[LayerRole::kQueryBias], 3))
                                                        : at::Tensor(),
          .qk_norm = {optional(LayerRole::kQueryNorm), optional(LayerRole::kKeyNorm), eps}};
}

// What forward and backward of a layer work with.
struct Layer {
  const ModelConfig& config;
  const LayerLayout& layout;
  Matmuls& matmuls;
  LayerWeights w;
  RopeTables rope;
  HeadCounts heads{config.num_attention_heads, config.num_key_value_heads};
};

at::Tensor forward(const Layer& layer, const at::Tensor& x, Saved& s) {
  const auto& [config, layout, matmuls, w, rope, heads] = layer;
  const int64_t batch = x.size(0), length = x.size(1), hidden = x.size(2);
  s.x = x;
  const at::Tensor rows = x.reshape({-1, hidden});
  const RmsNormOutput input_norm = rms_norm_forward(rows, w.input_norm, config.rms_norm_eps);
  s.normed = input_norm.y;
  s.rstd = input_norm.rstd;
  s.qkv = (w.qkv_bias.defined() ? matmuls.forward_bias(s.normed, w.qkv, w.qkv_bias) : matmuls.forward(s.normed, w.qkv))
              .view({batch, length, heads.query + 2 * heads.key_value, config.head_dim});
  s.qk = qk_rope_forward(s.qkv, heads, w.qk_norm, rope);
  const at::Tensor q = s.qk.narrow(2, 0, heads.query);
  s.attended = attention_forward(choose_attention_kernel(q), q, s.qk.narrow(2, heads.query, heads.key_value),
                                 s.qkv.narrow(2, heads.query + heads.key_value, heads.key_value));
  s.h = matmuls.forward_add(s.attended.out.reshape({-1, config.query_size()}), w.output, rows);
  const RmsNormOutput h_norm = rms_norm_forward(s.h, w.post_attention_norm, config.rms_norm_eps);
  s.h_normed = h_norm.y;
  s.h_rstd = h_norm.rstd;
  s.gate_up = matmuls.forward(s.h_normed, w.gate_up);
  s.activated = swiglu_forward(s.gate_up);
  return matmuls.forward_add(s.activated, w.down, s.h).view(x.sizes());
}

// Backward lets go of each activation after its last use. Weight gradients come after the pass that may make their
// input again.

// dy [N, H] -> dh [N, H], through the MLP and around it.
at::Tensor mlp_backward(const Layer& layer, const at::Tensor& dy, Saved& s, Gradients gradients, RowSums& sums) {
  const auto& [config, layout, matmuls, w, rope, heads] = layer;
  at::Tensor d_activated = matmuls.data_gradient(dy, w.down), d_gate_up;
  if (s.activated.defined()) {
    d_gate_up = swiglu_backward(d_activated, s.gate_up);
  } else {
    SwigluRecomputed both = swiglu_backward_recompute(d_activated, s.gate_up);
    d_gate_up = std::move(both.d_gate_up);
    s.activated = std::move(both.y);
  }
  d_activated.reset();
  s.gate_up.reset();
  gradients[layout[LayerRole::kDown]].add_matmul(dy, s.activated, &matmuls);
  s.activated.reset();

  RmsNormGradients norm = rms_norm_backward(matmuls.data_gradient(d_gate_up, w.gate_up), s.h, w.post_attention_norm,
                                            s.h_rstd, dy, /*with_y=*/!s.h_normed.defined());
  s.h.reset();
  sums.add(gradients[layout[LayerRole::kPostAttentionNorm]], norm.dweight_rows);
  if (norm.y.defined()) s.h_normed = std::move(norm.y);
  add_matmul(gradients.subspan(layout[LayerRole::kGate], 2), d_gate_up, s.h_normed, &matmuls);
  s.h_normed.reset();
  return norm.dx;
}

// d_attended [N, heads * D] -> the gradient of the packed projection [N, (heads + 2 * kv_heads) * D].
at::Tensor heads_backward(const Layer& layer, at::Tensor d_attended, Saved& s, Gradients gradients, RowSums& sums) {
  const auto& [config, layout, matmuls, w, rope, heads] = layer;
  if (!s.qk.defined()) s.qk = qk_rope_forward(s.qkv, heads, w.qk_norm, rope);
  const at::Tensor q = s.qk.narrow(2, 0, heads.query);
  const AttentionGradients attention =
      attention_backward(choose_attention_kernel(q), d_attended.view(s.attended.out.sizes()), q,
                         s.qk.narrow(2, heads.query, heads.key_value),
                         s.qkv.narrow(2, heads.query + heads.key_value, heads.key_value), s.attended);
  d_attended.reset();
  s.attended = {};
  const QkRopeGradients qk = qk_rope_backward(attention.dq, attention.dk, attention.dv, s.qkv, heads, w.qk_norm, rope);
  if (w.qk_norm.defined()) {
    sums.add(gradients[layout[LayerRole::kQueryNorm]], qk.dquery_weight_rows);
    sums.add(gradients[layout[LayerRole::kKeyNorm]], qk.dkey_weight_rows);
  }
  s.qk.reset();
  s.qkv.reset();
  return qk.dqkv.view({-1, config.query_size() + 2 * config.key_value_size()});
}

// dh [N, H] -> dx [N, H], through attention and around it.
at::Tensor attention_part_backward(const Layer& layer, const at::Tensor& dh, Saved& s, Gradients gradients,
                                   RowSums& sums) {
  const auto& [config, layout, matmuls, w, rope, heads] = layer;
  gradients[layout[LayerRole::kOutput]].add_matmul(dh, s.attended.out.reshape({-1, config.query_size()}), &matmuls);
  const at::Tensor dqkv = heads_backward(layer, matmuls.data_gradient(dh, w.output), s, gradients, sums);
  if (w.qkv_bias.defined()) {
    sums.add(gradients.subspan(layout[LayerRole::kQueryBias], 3), column_sum_rows(dqkv));
  }
  RmsNormGradients norm = rms_norm_backward(matmuls.data_gradient(dqkv, w.qkv), s.x.reshape({-1, config.hidden_size}),
                                            w.input_norm, s.rstd, dh, /*with_y=*/!s.normed.defined());
  sums.add(gradients[layout[LayerRole::kInputNorm]], norm.dweight_rows);
  if (norm.y.defined()) s.normed = std::move(norm.y);
  add_matmul(gradients.subspan(layout[LayerRole::kQuery], 3), dqkv, s.normed, &matmuls);
  return norm.dx;
}

}  // namespace

at::Tensor Decoder::layer_forward(Weights layer, const at::Tensor& x, LayerActivations* activations,
                                  Recompute recompute) const {
  Saved saved;
  at::Tensor y = forward(
      {config_, layout_, *matmuls_, by_role(layer, layout_, config_.rms_norm_eps), rope_->get(x.size(1), x.options())},
      x, saved);
  if (activations == nullptr) return y;
  if (recompute == Recompute::kSelective) saved.drop();
  activations->saved = recompute == Recompute::kFull ? std::vector<at::Tensor>{x} : saved.pack();
  return y;
}

at::Tensor Decoder::layer_backward(Weights weights, const at::Tensor& dy, LayerActivations& activations,
                                   Gradients gradients) const {
  const Layer layer{config_, layout_, *matmuls_, by_role(weights, layout_, config_.rms_norm_eps),
                    rope_->get(dy.size(1), dy.options())};
  Saved saved;
  if (activations.saved.size() == 1) {
    forward(layer, activations.saved[0], saved);
  } else {
    saved = Saved::unpack(std::move(activations.saved));
  }
  activations.saved.clear();
  RowSums sums;
  const at::Tensor dh = mlp_backward(layer, dy.reshape({-1, config_.hidden_size}), saved, gradients, sums);
  at::Tensor dx = attention_part_backward(layer, dh, saved, gradients, sums).view(dy.sizes());
  sums.run();
  return dx;
}

}  // namespace mpzero::model
