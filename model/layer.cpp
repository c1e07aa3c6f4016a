// Forward and backward pass of one decoder layer.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "model/adapters.hpp"
#include "model/decoder.hpp"
#include "model/kernels/column_sum.hpp"
#include "model/kernels/qk_rope.hpp"
#include "model/kernels/rms_norm.hpp"
#include "model/kernels/swiglu.hpp"
#include "model/matmuls.hpp"
#include "model/operation/elementwise.hpp"
#include "model/rope_table.hpp"
#include "model/rows.hpp"

namespace mpzero::model {

// Weights of a layer. Queries, keys and values form one matrix, and gate and up form one matrix.
struct LayerWeights {
  std::span<const at::Tensor> unit;  // all weights, in the order of the layer's unit
  Operand qkv, output, gate_up, down;
  at::Tensor qkv_bias;  // undefined without biases
};

// Inputs and settings of a layer's forward and backward pass.
struct Layer {
  const ModelConfig& config;
  const LayerLayout& layout;
  Matmuls& matmuls;
  LayerCasts casts;
  LayerWeights w;
  RopeTables rope;
  HeadCounts heads{config.num_attention_heads, config.num_key_value_heads};
  LayerAdapters adapters = {};

  bool has(LayerRole role) const { return layout.has(role); }
  // Returns a weight that the model has.
  const at::Tensor& weight(LayerRole role) const { return w.unit[layout[role]]; }
};

namespace {

at::Tensor& of(std::array<at::Tensor, 4>& tensors, LayerProduct product) {
  return tensors[static_cast<size_t>(product)];
}

// Attention or MLP. A model may lack either norm.
struct Sublayer {
  LayerProduct first, last;
  LayerRole input_norm, output_norm;
  Operand LayerActivations::*normed;  // input of `first`
};
constexpr Sublayer kAttentionPart{LayerProduct::kQkv, LayerProduct::kOutput, LayerRole::kInputNorm,
                                  LayerRole::kAttentionOutputNorm, &LayerActivations::normed};
constexpr Sublayer kMlpPart{LayerProduct::kGateUp, LayerProduct::kDown, LayerRole::kPostAttentionNorm,
                            LayerRole::kMlpOutputNorm, &LayerActivations::h_normed};

// Returns norm(x) and saves its rstd. `maximum`: see rms_norm_forward.
at::Tensor norm_forward(const Layer& layer, LayerActivations& s, LayerRole role, const at::Tensor& x,
                        const at::Tensor& maximum = {}) {
  RmsNormOutput norm = rms_norm_forward(x, layer.weight(role), layer.config.rms_norm_eps, maximum);
  s.norms[role].rstd = norm.rstd;
  return std::move(norm.y);
}

// Computes the input of the first matmul of attention or MLP from x [N, H].
void normalize(const Layer& layer, LayerActivations& s, const Sublayer& sublayer, const at::Tensor& x,
               fp8::Forms forms) {
  if (!layer.has(sublayer.input_norm)) {
    s.*sublayer.normed = layer.casts.input(sublayer.first, x, forms);
    return;
  }
  const at::Tensor maximum = layer.casts.maximum(sublayer.first, x.device());
  s.*sublayer.normed =
      layer.casts.input(sublayer.first, norm_forward(layer, s, sublayer.input_norm, x, maximum), forms, maximum);
}

// Returns residual + residual_multiplier * norm(a * weight^T), [N, H].
at::Tensor add_output(const Layer& layer, LayerActivations& s, const Sublayer& sublayer, const Operand& a,
                      const Operand& weight, const at::Tensor& residual) {
  const double multiplier = layer.config.residual_multiplier;
  const bool normed = layer.has(sublayer.output_norm);
  const bool adds = !normed && multiplier == 1;
  at::Tensor out = layer.matmuls.forward(a, weight, adds ? residual : at::Tensor());
  of(s.low_rank, sublayer.last) = layer.adapters.forward(sublayer.last, a, out);
  if (adds) return out;
  if (normed) {
    s.norms[sublayer.output_norm].x = out;
    out = norm_forward(layer, s, sublayer.output_norm, out);
  }
  const OperationScope scope = elementwise(out, multiplier == 1 ? 3 : 5);
  if (multiplier != 1) out.mul_(multiplier);
  return out.add_(residual);
}

// Returns the weights of the norms of each query and key head, undefined if the model lacks these norms.
QkNormWeights head_norms(const Layer& layer) {
  if (!layer.has(LayerRole::kQueryNorm)) return {};
  return {layer.weight(LayerRole::kQueryNorm), layer.weight(LayerRole::kKeyNorm), layer.config.rms_norm_eps};
}

// Returns the queries and keys of s.qkv after norms and RoPE: [B, T, heads + kv_heads, D].
at::Tensor rotated(const Layer& layer, LayerActivations& s) {
  const auto& [config, layout, matmuls, casts, w, rope, heads, adapters] = layer;
  if (!layer.has(LayerRole::kQueryTokenNorm)) return qk_rope_forward(s.qkv, heads, head_norms(layer), rope);
  const at::Tensor rows = s.qkv.view({s.qkv.size(0), s.qkv.size(1), -1});
  const at::Tensor q = norm_forward(layer, s, LayerRole::kQueryTokenNorm, rows.narrow(2, 0, config.query_size()));
  const at::Tensor k =
      norm_forward(layer, s, LayerRole::kKeyTokenNorm, rows.narrow(2, config.query_size(), config.key_value_size()));
  at::Tensor qk;
  {
    const OperationScope scope = elementwise(q, 2 * static_cast<double>(config.query_size() + config.key_value_size()) /
                                                    static_cast<double>(config.query_size()));
    qk = at::cat({q, k}, 2).view({rows.size(0), rows.size(1), heads.query + heads.key_value, -1});
  }
  return qk_rope_forward(qk, heads, {}, rope);
}

// Marks the copies of x [B, T, heads, D] before and after an exchange.
OperationScope head_exchange(const at::Tensor& x) {
  return {"head_exchange", [&] { return on_matrix(x.scalar_type(), x.size(0) * x.size(1), x.size(2) * x.size(3), 4); }};
}

// Exchanges x [B, T/P, heads, D] of this rank's tokens for [B, T, local heads, D]. Exchanges packed sequences one by
// one.
at::Tensor to_heads(const AttentionMask& mask, const at::Tensor& x) {
  const OperationScope scope = head_exchange(x);
  if (!mask.documents) return mask.ranks->to_heads(x);
  const int64_t tokens = mask.documents->seq_length / mask.ranks->size();
  const at::Tensor made = mask.ranks->to_heads(x.reshape({-1, tokens, x.size(2), x.size(3)}));
  return made.reshape({1, -1, made.size(2), made.size(3)});
}

// Transpose of to_heads.
at::Tensor to_tokens(const AttentionMask& mask, const at::Tensor& y, int64_t heads) {
  const OperationScope scope = head_exchange(y);
  if (!mask.documents) return mask.ranks->to_tokens(y, heads);
  const at::Tensor made =
      mask.ranks->to_tokens(y.reshape({-1, mask.documents->seq_length, y.size(2), y.size(3)}), heads);
  return made.reshape({1, -1, heads, made.size(3)});
}

// Returns the rotated queries, keys and values that this rank's attention reads.
std::array<at::Tensor, 3> attention_inputs(const Layer& layer, LayerActivations& s) {
  if (s.exchanged.front().defined()) return s.exchanged;
  if (!s.qk.defined()) s.qk = rotated(layer, s);
  const HeadCounts& heads = layer.heads;
  const std::array own = {s.qk.narrow(2, 0, heads.query), s.qk.narrow(2, heads.query, heads.key_value),
                          s.qkv.narrow(2, heads.query + heads.key_value, heads.key_value)};
  if (!s.mask.ranks) return own;
  s.exchanged = {to_heads(s.mask, own[0]), to_heads(s.mask, own[1]), to_heads(s.mask, own[2])};
  s.qk.reset();
  return s.exchanged;
}

// Returns the attention output of this rank's tokens, [N, heads * D].
at::Tensor attended_rows(const Layer& layer, const LayerActivations& s) {
  return (s.mask.ranks ? s.attended_tokens : s.attended.out).reshape({-1, layer.config.query_size()});
}

// Computes attention and its residual connection, up to s.h.
void forward_to_h(const Layer& layer, const at::Tensor& x, LayerActivations& s, fp8::Forms inputs,
                  const Attend& attend) {
  const auto& [config, layout, matmuls, casts, w, rope, heads, adapters] = layer;
  const int64_t batch = x.size(0), length = x.size(1), hidden = x.size(2);
  s.x = x;
  const at::Tensor rows = x.reshape({-1, hidden});
  normalize(layer, s, kAttentionPart, rows, inputs);
  const at::Tensor qkv = matmuls.forward(s.normed, w.qkv, w.qkv_bias);
  of(s.low_rank, LayerProduct::kQkv) = adapters.forward(LayerProduct::kQkv, s.normed, qkv);
  s.qkv = qkv.view({batch, length, heads.query + 2 * heads.key_value, config.head_dim});
  s.normed.drop_rows();
  const auto [q, k, v] = attention_inputs(layer, s);
  // Recompute::kAttention and kHostAttention save the attention output.
  if (!s.attended.out.defined()) {
    s.attended = attend ? attend(q, k, v) : attention_forward(choose_attention_kernel(q, s.mask), q, k, v, s.mask);
  }
  if (s.mask.ranks) s.attended_tokens = to_tokens(s.mask, s.attended.out, heads.query);
  // Attention saves its output for the backward pass, so the matmul's input is not saved.
  const at::Tensor attended = attended_rows(layer, s);
  s.h = add_output(layer, s, kAttentionPart,
                   casts.input(LayerProduct::kOutput, attended, fp8::Forms::kRows, at::Tensor(), &s.attended_maximum),
                   w.output, rows);
}

// Computes s.gate_up from s.h.
void forward_to_gate_up(const Layer& layer, LayerActivations& s, fp8::Forms inputs) {
  normalize(layer, s, kMlpPart, s.h, inputs);
  s.gate_up = layer.matmuls.forward(s.h_normed, layer.w.gate_up);
  of(s.low_rank, LayerProduct::kGateUp) = layer.adapters.forward(LayerProduct::kGateUp, s.h_normed, s.gate_up);
  s.h_normed.drop_rows();
}

// Returns the MLP's output [N, H], computed from s.gate_up.
at::Tensor forward_from_gate_up(const Layer& layer, LayerActivations& s, fp8::Forms inputs) {
  const at::Tensor maximum = layer.casts.maximum(LayerProduct::kDown, s.gate_up.device());
  s.activated = layer.casts.input(LayerProduct::kDown, swiglu_forward(s.gate_up, maximum), inputs, maximum);
  at::Tensor y = add_output(layer, s, kMlpPart, s.activated, layer.w.down, s.h);
  s.activated.drop_rows();
  return y;
}

// Calls run(rows) for each tile; `rows` narrows a tensor to the tile's rows.
template <typename Run>
void for_each_tile(int64_t rows, int64_t tile, const Run& run) {
  for (int64_t begin = 0; begin < rows; begin += tile) {
    run([begin, count = std::min(tile, rows - begin)](const at::Tensor& x) { return x.narrow(0, begin, count); });
  }
}

// Computes h = x + attention(norm(x)) and returns h + mlp(norm(h)), for x [B, T, H]. The attention mask is s.mask. `s`
// receives all tensors that the backward pass may read. `inputs`: forms in which `s` keeps FP8 inputs of matmuls.
// Inference passes an `attend` function with a KV cache.
at::Tensor layer_forward(const Layer& layer, const at::Tensor& x, LayerActivations& s, fp8::Forms inputs,
                         const Attend& attend = {}) {
  forward_to_h(layer, x, s, inputs, attend);
  if (s.tile == 0) {
    forward_to_gate_up(layer, s, inputs);
    return forward_from_gate_up(layer, s, inputs).view(x.sizes());
  }
  // Each tile of the output overwrites its input.
  const at::Tensor y = std::exchange(s.h, {});
  s.drop();
  for_each_tile(y.size(0), s.tile, [&](const auto& rows_of) {
    LayerActivations tile;
    tile.h = rows_of(y);
    forward_to_gate_up(layer, tile, inputs);
    const at::Tensor out = forward_from_gate_up(layer, tile, inputs);
    const OperationScope scope = elementwise(out, 2);
    rows_of(y).copy_(out);
  });
  return y.view(x.sizes());
}

// The backward functions free each activation after its last use. Weight gradients are computed after the pass that may
// recompute their input.

// Backward pass of norm_forward, which frees what it saved. See rms_norm_backward.
RmsNormGradients norm_backward(const Layer& layer, LayerActivations& s, LayerRole role, const at::Tensor& dy,
                               const at::Tensor& x, const at::Tensor& dresidual, Gradients gradients, RowSums& sums,
                               bool with_y = false, const at::Tensor& maximum = {}) {
  const at::Tensor rstd = std::exchange(s.norms[role], {}).rstd;
  RmsNormGradients norm = rms_norm_backward(dy, x, layer.weight(role), rstd, dresidual, with_y, maximum);
  sums.add(gradients[layer.layout[role]], norm.dweight_rows);
  return norm;
}

// Returns the gradient of add_output's matmul for `d` [N, H], the gradient of its sum.
at::Tensor output_backward(const Layer& layer, LayerActivations& s, const Sublayer& sublayer, at::Tensor d,
                           Gradients gradients, RowSums& sums) {
  if (layer.config.residual_multiplier != 1) {
    const OperationScope scope = elementwise(d, 2);
    d = d.mul(layer.config.residual_multiplier);
  }
  if (!layer.has(sublayer.output_norm)) return d;
  const at::Tensor x = s.norms[sublayer.output_norm].x;
  return norm_backward(layer, s, sublayer.output_norm, d, x, at::Tensor(), gradients, sums).dx;
}

// Returns dresidual plus the gradient through the norm. Recomputes the matmul's operand if it was dropped.
// `maximum`: see rms_norm_backward.
at::Tensor normalize_backward(const Layer& layer, LayerActivations& s, const Sublayer& sublayer, at::Tensor d_normed,
                              at::Tensor x, const at::Tensor& dresidual, Gradients gradients, RowSums& sums,
                              const at::Tensor& maximum = {}) {
  Operand& normed = s.*sublayer.normed;
  const bool dropped = !normed.defined();
  if (!layer.has(sublayer.input_norm)) {
    if (dropped) normed = layer.casts.input(sublayer.first, x, fp8::Forms::kColumns);
    const OperationScope scope = elementwise(d_normed, 3);
    return d_normed.add_(dresidual);
  }
  RmsNormGradients norm = norm_backward(layer, s, sublayer.input_norm, d_normed, x, dresidual, gradients, sums,
                                        /*with_y=*/dropped, maximum);
  d_normed.reset();
  x.reset();
  if (dropped) normed = layer.casts.input(sublayer.first, std::exchange(norm.y, {}), fp8::Forms::kColumns);
  return norm.dx;
}

// Returns dh [N, H] for dy [N, H], through the MLP and its residual connection. `maximum_of_dh`: see rms_norm_backward.
at::Tensor mlp_backward(const Layer& layer, const at::Tensor& dy, LayerActivations& s, Gradients gradients,
                        RowSums& sums, const at::Tensor& maximum_of_dh) {
  const auto& [config, layout, matmuls, casts, w, rope, heads, adapters] = layer;
  const Operand d = casts.gradient(LayerProduct::kDown, output_backward(layer, s, kMlpPart, dy, gradients, sums));
  const at::Tensor maximum = casts.maximum(LayerProduct::kGateUp, dy.device());
  at::Tensor d_activated = matmuls.data_gradient(d, w.down), d_gate_up;
  const at::Tensor dz_down = adapters.data_gradient(LayerProduct::kDown, d, d_activated);
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
  adapters.weight_gradients(LayerProduct::kDown, d, dz_down, s.activated, of(s.low_rank, LayerProduct::kDown),
                            gradients);
  s.activated.reset();

  const Operand d_mlp = casts.gradient(LayerProduct::kGateUp, std::exchange(d_gate_up, {}), maximum);
  at::Tensor d_normed = matmuls.data_gradient(d_mlp, w.gate_up);
  const at::Tensor dz = adapters.data_gradient(LayerProduct::kGateUp, d_mlp, d_normed);
  at::Tensor dh = normalize_backward(layer, s, kMlpPart, std::move(d_normed), std::exchange(s.h, {}), dy, gradients,
                                     sums, maximum_of_dh);
  add_matmul(gradients.subspan(layout[LayerRole::kGate], layout.count_of_gate_up()), d_mlp, s.h_normed, &matmuls);
  adapters.weight_gradients(LayerProduct::kGateUp, d_mlp, dz, s.h_normed, of(s.low_rank, LayerProduct::kGateUp),
                            gradients);
  s.h_normed.reset();
  return dh;
}

// Recomputes the part of the MLP's forward pass, from s.h, that the backward pass reads.
void recompute_mlp(const Layer& layer, LayerActivations& s) {
  forward_to_gate_up(layer, s, fp8::Forms::kBoth);
  // mlp_backward recomputes SwiGLU. Only a norm of the MLP's output or an adapter of its last matmul needs the rest of
  // the forward pass.
  if (layer.has(kMlpPart.output_norm) || layer.adapters.adapts(LayerProduct::kDown))
    forward_from_gate_up(layer, s, fp8::Forms::kBoth);
}

// Runs recompute_mlp and mlp_backward tile by tile.
at::Tensor tiled_mlp_backward(const Layer& layer, const at::Tensor& dy, LayerActivations& s, Gradients gradients) {
  const LayerLayout& layout = layer.layout;
  std::vector<size_t> of_mlp{layout[LayerRole::kDown]};
  for (size_t i = 0; i < layout.count_of_gate_up(); ++i) of_mlp.push_back(layout[LayerRole::kGate] + i);
  for (const LayerRole norm : {kMlpPart.input_norm, kMlpPart.output_norm}) {
    if (layout.has(norm)) of_mlp.push_back(layout[norm]);
  }
  PiecewiseGradients sums(gradients, of_mlp);
  // Each tile of dh overwrites the same tile of h.
  const at::Tensor dh = std::exchange(s.h, {});
  for_each_tile(dh.size(0), s.tile, [&](const auto& rows_of) {
    LayerActivations tile;
    tile.h = rows_of(dh);
    recompute_mlp(layer, tile);
    RowSums norms;
    {
      const at::Tensor d = mlp_backward(layer, rows_of(dy), tile, sums.pieces(), norms, at::Tensor());
      const OperationScope scope = elementwise(d, 2);
      rows_of(dh).copy_(d);
    }
    norms.run();
  });
  sums.finish();
  return dh;
}

// Updates the gradient of the packed projection, dqkv [B, T, heads + 2 * kv_heads, D], in place: backward pass of the
// norms over all queries and all keys of a token.
void token_norm_backward(const Layer& layer, const at::Tensor& dqkv, LayerActivations& s, Gradients gradients,
                         RowSums& sums) {
  const auto through = [&](LayerRole role, int64_t begin, int64_t count) {
    const auto rows = [&](const at::Tensor& x) { return x.view({x.size(0), x.size(1), -1}).narrow(2, begin, count); };
    const at::Tensor dx = norm_backward(layer, s, role, rows(dqkv), rows(s.qkv), at::Tensor(), gradients, sums).dx;
    const OperationScope scope = elementwise(dx, 2);
    rows(dqkv).copy_(dx);
  };
  through(LayerRole::kQueryTokenNorm, 0, layer.config.query_size());
  through(LayerRole::kKeyTokenNorm, layer.config.query_size(), layer.config.key_value_size());
}

// Returns the gradient of the packed projection, [N, (heads + 2 * kv_heads) * D], for d_attended [N, heads * D].
// `maximum`: see qk_rope_backward.
at::Tensor heads_backward(const Layer& layer, at::Tensor d_attended, LayerActivations& s, Gradients gradients,
                          RowSums& sums, const at::Tensor& maximum) {
  const auto& [config, layout, matmuls, casts, w, rope, heads, adapters] = layer;
  AttentionGradients attention;
  {
    const auto [q, k, v] = attention_inputs(layer, s);
    d_attended = d_attended.view({s.qkv.size(0), s.qkv.size(1), heads.query, config.head_dim});
    if (s.mask.ranks) d_attended = to_heads(s.mask, d_attended);
    attention = attention_backward(choose_attention_kernel(q, s.mask), d_attended, q, k, v, s.attended, s.mask);
  }
  d_attended.reset();
  s.attended = {};
  s.exchanged = {};
  if (s.mask.ranks) {
    attention = {.dq = to_tokens(s.mask, attention.dq, heads.query),
                 .dk = to_tokens(s.mask, attention.dk, heads.key_value),
                 .dv = to_tokens(s.mask, attention.dv, heads.key_value)};
  }
  const QkRopeGradients qk =
      qk_rope_backward(attention.dq, attention.dk, attention.dv, s.qkv, heads, head_norms(layer), rope, maximum);
  if (layer.has(LayerRole::kQueryNorm)) {
    sums.add(gradients[layout[LayerRole::kQueryNorm]], qk.dquery_weight_rows);
    sums.add(gradients[layout[LayerRole::kKeyNorm]], qk.dkey_weight_rows);
  }
  if (layer.has(LayerRole::kQueryTokenNorm)) token_norm_backward(layer, qk.dqkv, s, gradients, sums);
  s.qk.reset();
  s.qkv.reset();
  return qk.dqkv.view({-1, config.query_size() + 2 * config.key_value_size()});
}

// Returns dx [N, H] for dh [N, H], through attention and its residual. `maximum_of_dh`: maximum of dh, if known.
at::Tensor attention_part_backward(const Layer& layer, const at::Tensor& dh, LayerActivations& s, Gradients gradients,
                                   RowSums& sums, const at::Tensor& maximum_of_dh) {
  const auto& [config, layout, matmuls, casts, w, rope, heads, adapters] = layer;
  Operand d = casts.gradient(LayerProduct::kOutput, output_backward(layer, s, kAttentionPart, dh, gradients, sums),
                             maximum_of_dh);
  gradients[layout[LayerRole::kOutput]].add_matmul(
      d, casts.input(LayerProduct::kOutput, attended_rows(layer, s), fp8::Forms::kColumns, s.attended_maximum),
      &matmuls);
  at::Tensor d_attended = matmuls.data_gradient(d, w.output);
  const at::Tensor dz_output = adapters.data_gradient(LayerProduct::kOutput, d, d_attended);
  adapters.weight_gradients(LayerProduct::kOutput, d, dz_output, attended_rows(layer, s),
                            of(s.low_rank, LayerProduct::kOutput), gradients);
  s.attended_tokens.reset();
  d.reset();
  // token_norm_backward changes the gradient after qk_rope_backward, which would compute the maximum.
  const at::Tensor maximum =
      layer.has(LayerRole::kQueryTokenNorm) ? at::Tensor() : casts.maximum(LayerProduct::kQkv, dh.device());
  at::Tensor dqkv = heads_backward(layer, std::move(d_attended), s, gradients, sums, maximum);
  if (w.qkv_bias.defined()) {
    sums.add(gradients.subspan(layout[LayerRole::kQueryBias], 3), column_sum_rows(dqkv));
  }
  const Operand d_heads = casts.gradient(LayerProduct::kQkv, std::exchange(dqkv, {}), maximum);
  at::Tensor d_normed = matmuls.data_gradient(d_heads, w.qkv);
  const at::Tensor dz_heads = adapters.data_gradient(LayerProduct::kQkv, d_heads, d_normed);
  at::Tensor dx = normalize_backward(layer, s, kAttentionPart, std::move(d_normed),
                                     s.x.reshape({-1, config.hidden_size}), dh, gradients, sums);
  add_matmul(gradients.subspan(layout[LayerRole::kQuery], layout.count_of_qkv()), d_heads, s.normed, &matmuls);
  adapters.weight_gradients(LayerProduct::kQkv, d_heads, dz_heads, s.normed, of(s.low_rank, LayerProduct::kQkv),
                            gradients);
  return dx;
}

}  // namespace

Layer Decoder::layer_of(const Weights& weights, const Dropout& dropout, fp8::Forms forms) const {
  const LayerLayout& layout = *layout_;
  const LayerCasts of_layer = casts(weights);
  using enum LayerProduct;
  return {
      .config = config_,
      .layout = layout,
      .matmuls = *matmuls_,
      .casts = of_layer,
      .w = {.unit = weights,
            .qkv = of_layer.weight(kQkv, join_rows(weights.subspan(layout[LayerRole::kQuery], layout.count_of_qkv())),
                                   forms),
            .output = of_layer.weight(kOutput, weights[layout[LayerRole::kOutput]], forms),
            .gate_up = of_layer.weight(
                kGateUp, join_rows(weights.subspan(layout[LayerRole::kGate], layout.count_of_gate_up())), forms),
            .down = of_layer.weight(kDown, weights[layout[LayerRole::kDown]], forms),
            .qkv_bias = layout.has(LayerRole::kQueryBias) ? join_rows(weights.subspan(layout[LayerRole::kQueryBias], 3))
                                                          : at::Tensor()},
      .rope = {},
      .adapters = adapters(weights, dropout)};
}

at::Tensor Decoder::layer_forward(Weights layer, const at::Tensor& x, LayerActivations* activations,
                                  Recompute recompute, const AttentionMask& mask,
                                  const std::optional<DropoutSeed>& dropout) const {
  LayerActivations saved;
  saved.recompute = recompute;
  saved.mask = mask;
  saved.tile = tile_of(recompute, x.numel() / config_.hidden_size);
  if (dropout && lora_ && config_.lora->dropout > 0) {
    saved.dropout = {.rate = config_.lora->dropout,
                     .seed = *dropout,
                     .sequences = x.size(0),
                     .place = LayerAdapters::first_place(layer.layer.value())};
  }
  Layer of = layer_of(layer, saved.dropout, fp8::Forms::kRows);
  of.rope = rope_->get(x, mask, rotates(layer));
  const bool keeps_inputs = activations != nullptr && recompute == Recompute::kNone;
  at::Tensor y = model::layer_forward(of, x, saved, keeps_inputs ? fp8::Forms::kBoth : fp8::Forms::kRows);
  if (activations == nullptr) return y;
  saved.drop();
  *activations = std::move(saved);
  return y;
}

at::Tensor Decoder::layer_cached(Weights weights, const at::Tensor& x, int64_t begin, int64_t capacity,
                                 const Attend& attend) const {
  Layer layer = layer_of(weights, {}, fp8::Forms::kRows);
  const RopeTables all = rope_->get(capacity, x.options(), rotates(weights));
  layer.rope = {all.cos.narrow(0, begin, x.size(1)), all.sin.narrow(0, begin, x.size(1))};
  LayerActivations unused;
  return model::layer_forward(layer, x, unused, fp8::Forms::kRows, attend);
}

at::Tensor Decoder::layer_backward(Weights weights, const at::Tensor& dy, LayerActivations& activations,
                                   Gradients gradients) const {
  LayerActivations saved = std::exchange(activations, {});
  // gate_up is undefined only if the whole forward pass must run again.
  const bool runs_forward = !saved.gate_up.defined();
  Layer layer = layer_of(weights, saved.dropout, runs_forward ? fp8::Forms::kBoth : fp8::Forms::kColumns);
  layer.rope = rope_->get(dy, saved.mask, rotates(weights));
  if (runs_forward) {
    forward_to_h(layer, at::Tensor(saved.x), saved, fp8::Forms::kBoth, {});
    if (saved.tile == 0) recompute_mlp(layer, saved);
  }
  RowSums sums;
  // If dh is the gradient of attention's output matmul, the backward pass of the MLP's input norm computes its maximum.
  const bool is_dh =
      layer.has(kMlpPart.input_norm) && !layer.has(kAttentionPart.output_norm) && config_.residual_multiplier == 1;
  const at::Tensor maximum_of_dh = is_dh ? layer.casts.maximum(LayerProduct::kOutput, dy.device()) : at::Tensor();
  const at::Tensor dy_rows = dy.reshape({-1, config_.hidden_size});
  const at::Tensor dh = saved.tile > 0 ? tiled_mlp_backward(layer, dy_rows, saved, gradients)
                                       : mlp_backward(layer, dy_rows, saved, gradients, sums, maximum_of_dh);
  at::Tensor dx = attention_part_backward(layer, dh, saved, gradients, sums, maximum_of_dh).view(dy.sizes());
  sums.run();
  return dx;
}

}  // namespace mpzero::model
