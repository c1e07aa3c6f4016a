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

// The activations of a layer. N = B * T tokens; I: intermediate size.
struct Saved {
  at::Tensor x;              // [B, T, H], the layer's input
  at::Tensor normed;         // [N, H], x after its norm
  at::Tensor rstd;           // [N]
  at::Tensor qkv;            // [B, T, heads + 2 * kv_heads, D], before norms and rotation
  at::Tensor qk;             // [B, T, heads + kv_heads, D], after them; without norms a view of qkv
  AttentionOutput attended;  // out [B, T, heads, D]
  at::Tensor h;              // [N, H], x plus attention
  at::Tensor h_normed;       // [N, H]
  at::Tensor h_rstd;         // [N]
  at::Tensor gate_up;        // [N, 2I]
  at::Tensor activated;      // [N, I]

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

at::Tensor forward(const ModelConfig& config, Matmuls& matmuls, const LayerWeights& w, const RopeTables& rope,
                   const at::Tensor& x, Saved& s) {
  const HeadCounts heads{config.num_attention_heads, config.num_key_value_heads};
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

}  // namespace

at::Tensor Decoder::layer_forward(Weights layer, const at::Tensor& x, LayerActivations* activations,
                                  bool recompute) const {
  const LayerWeights weights = by_role(layer, layout_, config_.rms_norm_eps);
  Saved saved;
  at::Tensor y = forward(config_, *matmuls_, weights, rope_->get(x.size(1), x.options()), x, saved);
  if (activations != nullptr) activations->saved = recompute ? std::vector<at::Tensor>{x} : saved.pack();
  return y;
}

at::Tensor Decoder::layer_backward(Weights layer, const at::Tensor& dy, LayerActivations& activations,
                                   Gradients gradients) const {
  const LayerWeights w = by_role(layer, layout_, config_.rms_norm_eps);
  const RopeTables rope = rope_->get(dy.size(1), dy.options());
  Saved s;
  if (activations.saved.size() == 1) {
    forward(config_, *matmuls_, w, rope, activations.saved[0], s);
  } else {
    s = Saved::unpack(std::move(activations.saved));
  }
  activations.saved.clear();

  const HeadCounts heads{config_.num_attention_heads, config_.num_key_value_heads};
  const at::Tensor d_out = dy.reshape({-1, config_.hidden_size});

  gradients[layout_[LayerRole::kDown]].add_matmul(d_out, s.activated, matmuls_.get());
  const at::Tensor d_gate_up = swiglu_backward(matmuls_->data_gradient(d_out, w.down), s.gate_up);
  add_matmul(gradients.subspan(layout_[LayerRole::kGate], 2), d_gate_up, s.h_normed, matmuls_.get());
  const RmsNormGradients h_norm =
      rms_norm_backward(matmuls_->data_gradient(d_gate_up, w.gate_up), s.h, w.post_attention_norm, s.h_rstd, d_out);
  gradients[layout_[LayerRole::kPostAttentionNorm]].add_row_sum(h_norm.dweight_rows);

  const at::Tensor& dh = h_norm.dx;
  gradients[layout_[LayerRole::kOutput]].add_matmul(dh, s.attended.out.reshape({-1, config_.query_size()}),
                                                    matmuls_.get());
  const at::Tensor d_attended = matmuls_->data_gradient(dh, w.output).view(s.attended.out.sizes());
  const at::Tensor q = s.qk.narrow(2, 0, heads.query);
  const AttentionGradients attention =
      attention_backward(choose_attention_kernel(q), d_attended, q, s.qk.narrow(2, heads.query, heads.key_value),
                         s.qkv.narrow(2, heads.query + heads.key_value, heads.key_value), s.attended);
  const QkRopeGradients qk = qk_rope_backward(attention.dq, attention.dk, attention.dv, s.qkv, heads, w.qk_norm, rope);
  if (w.qk_norm.defined()) {
    gradients[layout_[LayerRole::kQueryNorm]].add_row_sum(qk.dquery_weight_rows);
    gradients[layout_[LayerRole::kKeyNorm]].add_row_sum(qk.dkey_weight_rows);
  }
  const at::Tensor dqkv = qk.dqkv.view({-1, config_.query_size() + 2 * config_.key_value_size()});
  add_matmul(gradients.subspan(layout_[LayerRole::kQuery], 3), dqkv, s.normed, matmuls_.get());
  if (w.qkv_bias.defined()) {
    add_row_sum(gradients.subspan(layout_[LayerRole::kQueryBias], 3), column_sum_rows(dqkv));
  }
  const RmsNormGradients input_norm = rms_norm_backward(
      matmuls_->data_gradient(dqkv, w.qkv), s.x.reshape({-1, config_.hidden_size}), w.input_norm, s.rstd, dh);
  gradients[layout_[LayerRole::kInputNorm]].add_row_sum(input_norm.dweight_rows);
  return input_norm.dx.view(dy.sizes());
}

}  // namespace mpzero::model
