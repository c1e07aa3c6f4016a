#include "model/t5.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/threshold_backward.h>

#include <cmath>

#include "model/kernels/dropout.hpp"
#include "model/kernels/relative_attention.hpp"
#include "model/kernels/rms_norm.hpp"
#include "model/matmuls.hpp"
#include "model/operation/elementwise.hpp"
#include "model/rows.hpp"

namespace mpzero::model {
namespace {

// Tensors saved by the forward pass of a sublayer. N = B * T tokens of its stack. Each sublayer adds its result to x.
struct Norm {
  at::Tensor x, y, rstd;  // [N, d]; y is recomputed if undefined
};
struct Attention {
  Norm norm;
  at::Tensor memory;   // [B * S, d]: source of keys and values; norm.y if undefined
  at::Tensor q, k, v;  // [B, T or S, heads, k]
  AttentionOutput output;
};
struct FeedForward {
  Norm norm;
  at::Tensor inner;      // [N, d_ff], or [N, 2 d_ff] if gated
  at::Tensor activated;  // [N, d_ff], recomputed if undefined
};
struct Saved {
  Values inputs;
  at::Tensor padding;  // [B, S]: padding of the source
  Dropout dropout{};   // first dropout of the layer
  Attention self{}, cross{};
  FeedForward feed_forward{};
  Norm final_norm{};

  void drop(Recompute recompute) {
    if (recompute == Recompute::kNone) return;
    if (keeps_input_only(recompute)) {
      *this = Saved{.inputs = std::move(inputs), .padding = std::move(padding), .dropout = dropout};
      return;
    }
    for (Norm* norm : {&self.norm, &cross.norm, &feed_forward.norm, &final_norm}) norm->y.reset();
    feed_forward.activated.reset();
  }
};

// Dropout calls of a layer, as in transformers' T5. The ID of a call is kDropoutPlaces * unit + its value here. The
// embedding has two calls (source and tokens), and the head has one call (output of its norm).
enum class DropoutPlace : uint8_t { kSelfScores, kSelf, kCrossScores, kCross, kInner, kFeedForward, kFinalNorm };
constexpr uint32_t kDropoutPlaces = 8;

Dropout at_place(Dropout dropout, DropoutPlace place) {
  dropout.place += static_cast<uint32_t>(place);
  return dropout;
}
// Returns the dropout of attention's output. Its ID follows the ID of the scores.
Dropout after_scores(Dropout dropout) {
  ++dropout.place;
  return dropout;
}

// Indices of a layer's weights in its unit, in their order. The first four are q, k, v and o of the self-attention.
struct Places {
  bool first, decoder, gated;
  size_t table = 4, self_norm = first ? 5 : 4, cross = self_norm + 1, cross_norm = cross + 4,
         inner = decoder ? cross_norm + 1 : cross, down = inner + (gated ? 2 : 1), norm = down + 1,
         final_norm = norm + 1;
};

// Forward and backward pass of one layer. `layer`: weights in the order of the unit.
struct Block {
  const ModelConfig& config;
  Matmuls& matmuls;
  const T5Layer layer;
  std::span<const at::Tensor> w;
  Places at{layer.first, layer.decoder, config.t5->gated};

  at::Tensor inner_weight() const { return join_rows(w.subspan(at.inner, config.t5->gated ? 2 : 1)); }
  at::Tensor by_head(const at::Tensor& rows, int64_t batch) const {
    return rows.view({batch, -1, rows.size(1) / config.head_dim, config.head_dim});
  }
  RelativeAttention self_call(const Saved& s) const {
    const at::Tensor table = layer.first ? w[at.table] : s.inputs[1];
    return {.causal = layer.decoder,
            .table = table,
            .max_distance = config.t5->max_distance,
            .padding = layer.decoder ? at::Tensor() : s.padding,
            .dropout = at_place(s.dropout, DropoutPlace::kSelfScores)};
  }
  RelativeAttention cross_call(const Saved& s) const {
    return {.padding = s.padding, .dropout = at_place(s.dropout, DropoutPlace::kCrossScores)};
  }

  // Returns x plus a sublayer's output y * w^T.
  at::Tensor add_output(const at::Tensor& y, const at::Tensor& weight, const at::Tensor& x,
                        const Dropout& dropout) const {
    if (dropout.rate == 0) return matmuls.forward(y, weight, x);
    at::Tensor output = matmuls.forward(y, weight);
    dropout_(output, dropout);
    const OperationScope scope = elementwise(x, 3);
    return output.add_(x);
  }

  at::Tensor norm(const at::Tensor& x, size_t weight, Norm& s) const {
    RmsNormOutput normed = rms_norm_forward(x, w[weight], config.rms_norm_eps);
    s = {.x = x, .y = normed.y, .rstd = normed.rstd};
    return std::move(normed.y);
  }

  at::Tensor attention(const at::Tensor& x, int64_t batch, size_t first, size_t norm_weight,
                       const RelativeAttention& call, Attention& s, KeysValues* kept) const {
    const at::Tensor y = norm(x, norm_weight, s.norm);
    const int64_t heads = config.num_attention_heads;
    if (s.memory.defined()) {
      s.q = by_head(matmuls.forward(y, w[first]), batch);
      if (kept != nullptr && kept->keys.defined()) {
        s.k = kept->keys;
        s.v = kept->values;
      } else {
        const at::Tensor kv = by_head(matmuls.forward(s.memory, join_rows(w.subspan(first + 1, 2))), batch);
        s.k = kv.narrow(2, 0, heads);
        s.v = kv.narrow(2, heads, heads);
      }
    } else {
      const at::Tensor qkv = by_head(matmuls.forward(y, join_rows(w.subspan(first, 3))), batch);
      s.q = qkv.narrow(2, 0, heads);
      s.k = qkv.narrow(2, heads, heads);
      s.v = qkv.narrow(2, 2 * heads, heads);
      if (kept != nullptr && kept->keys.defined()) {
        s.k = at::cat({kept->keys, s.k}, 1);
        s.v = at::cat({kept->values, s.v}, 1);
      }
    }
    if (kept != nullptr) *kept = {.keys = s.k, .values = s.v};
    s.output = relative_attention_forward(s.q, s.k, s.v, call);
    return add_output(s.output.out.view({x.size(0), -1}), w[first + 3], x, after_scores(call.dropout));
  }

  at::Tensor activate(const at::Tensor& inner, const Dropout& dropout) const {
    at::Tensor y;
    if (config.t5->gated) {
      const OperationScope scope = elementwise(inner, 2.5);
      const std::vector<at::Tensor> halves = inner.chunk(2, 1);
      y = at::gelu(halves[0], "tanh").mul_(halves[1]);
    } else {
      const OperationScope scope = elementwise(inner, 2);
      y = at::clamp_min(inner, 0);
    }
    dropout_(y, at_place(dropout, DropoutPlace::kInner));
    return y;
  }
  at::Tensor activate_backward(const at::Tensor& dy, const at::Tensor& inner) const {
    const OperationScope scope = elementwise(inner, config.t5->gated ? 7.5 : 3);
    if (!config.t5->gated) return at::threshold_backward(dy, inner, 0);
    const std::vector<at::Tensor> halves = inner.chunk(2, 1);
    return at::cat({at::gelu_backward(dy.mul(halves[1]), halves[0], "tanh"), at::gelu(halves[0], "tanh").mul_(dy)}, 1);
  }

  Values forward(Saved& s, T5Cache* cache = nullptr) const {
    const at::Tensor& input = s.inputs.front();
    const int64_t batch = input.size(0);
    at::Tensor x = attention(input.reshape({-1, config.hidden_size}), batch, 0, at.self_norm, self_call(s), s.self,
                             cache != nullptr ? &cache->self : nullptr);
    if (layer.decoder) {
      s.cross.memory = s.inputs.back().reshape({-1, config.hidden_size});
      x = attention(x, batch, at.cross, at.cross_norm, cross_call(s), s.cross,
                    cache != nullptr ? &cache->cross : nullptr);
    }
    FeedForward& f = s.feed_forward;
    f.inner = matmuls.forward(norm(x, at.norm, f.norm), inner_weight());
    f.activated = activate(f.inner, s.dropout);
    x = add_output(f.activated, w[at.down], x, at_place(s.dropout, DropoutPlace::kFeedForward));
    if (layer.last_of_encoder) {
      x = norm(x, at.final_norm, s.final_norm);
      dropout_(x, at_place(s.dropout, DropoutPlace::kFinalNorm));
    }
    Values outputs{x.view(input.sizes())};
    // Copies the table, because the weights are released after this call.
    if (layer.first) outputs.push_back(w[at.table].clone());
    return outputs;
  }

  // Returns the gradient of x. `dresidual`: gradient of the residual sum that contains x, or undefined.
  at::Tensor norm_backward(const at::Tensor& dy, Norm& s, size_t weight, const at::Tensor& dresidual,
                           Gradients gradients, RowSums& sums) const {
    RmsNormGradients made = rms_norm_backward(dy, s.x, w[weight], s.rstd, dresidual, /*with_y=*/!s.y.defined());
    if (made.y.defined()) s.y = std::move(made.y);
    sums.add(gradients[weight], made.dweight_rows);
    return made.dx;
  }

  // Sets `d_memory` for cross-attention. Adds to `d_table` if the sublayer reads the table.
  at::Tensor attention_backward(const at::Tensor& dy, size_t first, size_t norm_weight, const RelativeAttention& call,
                                Attention s, Gradients gradients, RowSums& sums, at::Tensor& d_memory,
                                at::Tensor& d_table) const {
    at::Tensor d_out = after_dropout(dy, after_scores(call.dropout));
    gradients[first + 3].add_matmul(d_out, s.output.out.view({dy.size(0), -1}), &matmuls);
    d_out = matmuls.data_gradient(d_out, w[first + 3]);
    const RelativeAttentionGradients d =
        relative_attention_backward(std::exchange(d_out, {}).view(s.output.out.sizes()), s.q, s.k, s.v, s.output, call);
    if (d.dtable.defined()) d_table = d_table.defined() ? d_table.add(d.dtable) : d.dtable;
    const auto as_rows = [&](at::TensorList heads) {
      const at::Tensor& first = heads.front();
      const OperationScope scope = elementwise(first.expand({std::ssize(heads), -1, -1, -1, -1}), 2);
      return at::cat(heads, 2).view({first.size(0) * first.size(1), -1});
    };
    if (!s.memory.defined()) {
      const at::Tensor dqkv = as_rows({d.dq, d.dk, d.dv});
      const at::Tensor dx = norm_backward(matmuls.data_gradient(dqkv, join_rows(w.subspan(first, 3))), s.norm,
                                          norm_weight, dy, gradients, sums);
      add_matmul(gradients.subspan(first, 3), dqkv, s.norm.y, &matmuls);
      return dx;
    }
    const at::Tensor dq = as_rows({d.dq}), dkv = as_rows({d.dk, d.dv});
    add_matmul(gradients.subspan(first + 1, 2), dkv, s.memory, &matmuls);
    d_memory = matmuls.data_gradient(dkv, join_rows(w.subspan(first + 1, 2)));
    const at::Tensor dx = norm_backward(matmuls.data_gradient(dq, w[first]), s.norm, norm_weight, dy, gradients, sums);
    gradients[first].add_matmul(dq, s.norm.y, &matmuls);
    return dx;
  }

  at::Tensor feed_forward_backward(const at::Tensor& dy, FeedForward s, const Dropout& dropout, Gradients gradients,
                                   RowSums& sums) const {
    if (!s.activated.defined()) s.activated = activate(s.inner, dropout);
    at::Tensor d_out = after_dropout(dy, at_place(dropout, DropoutPlace::kFeedForward));
    gradients[at.down].add_matmul(d_out, s.activated, &matmuls);
    d_out = matmuls.data_gradient(d_out, w[at.down]);
    dropout_(d_out, at_place(dropout, DropoutPlace::kInner));
    const at::Tensor d_inner = activate_backward(std::exchange(d_out, {}), s.inner);
    const at::Tensor dx =
        norm_backward(matmuls.data_gradient(d_inner, inner_weight()), s.norm, at.norm, dy, gradients, sums);
    add_matmul(gradients.subspan(at.inner, config.t5->gated ? 2 : 1), d_inner, s.norm.y, &matmuls);
    return dx;
  }

  Values backward(const Values& d_outputs, Saved s, Gradients gradients) const {
    const at::Tensor input = s.inputs.front();
    RowSums sums;
    at::Tensor d = d_outputs.front().reshape({-1, config.hidden_size}), d_memory;
    at::Tensor d_table = layer.first ? d_outputs.back() : at::Tensor();
    if (layer.last_of_encoder) {
      d = norm_backward(after_dropout(d, at_place(s.dropout, DropoutPlace::kFinalNorm)), s.final_norm, at.final_norm,
                        at::Tensor(), gradients, sums);
    }
    d = feed_forward_backward(d, std::exchange(s.feed_forward, {}), s.dropout, gradients, sums);
    if (layer.decoder) {
      d = attention_backward(d, at.cross, at.cross_norm, cross_call(s), std::exchange(s.cross, {}), gradients, sums,
                             d_memory, d_table);
    }
    d = attention_backward(d, 0, at.self_norm, self_call(s), std::exchange(s.self, {}), gradients, sums, d_memory,
                           d_table);
    sums.run();
    Values d_inputs{d.view(input.sizes())};
    if (layer.first) {
      gradients[at.table].add(d_table);
    } else {
      d_inputs.push_back(d_table);
    }
    if (layer.decoder) d_inputs.push_back(d_memory.view(s.inputs.back().sizes()));
    return d_inputs;
  }
};

}  // namespace

std::vector<LayerValues> T5::graph() const {
  std::vector<LayerValues> layers;
  size_t table = 0, last = 0, memory = 0, next = 2;  // values 0 and 1: embedded source and tokens
  for (int64_t index = 0; index < config().num_hidden_layers; ++index) {
    const T5Layer layer = t5_layer(config(), index);
    if (layer.first && layer.decoder) memory = std::exchange(last, 1);
    LayerValues values{.inputs = {last}, .outputs = {next}};
    last = next++;
    if (layer.first) {
      values.outputs.push_back(table = next++);
    } else {
      values.inputs.push_back(table);
    }
    if (layer.decoder) values.inputs.push_back(memory);
    layers.push_back(std::move(values));
  }
  return layers;
}

Values T5::embed(Weights embedding, const Batch& batch) const {
  Values embedded{embed_forward(embedding, batch.source), embed_forward(embedding, batch.tokens)};
  for (uint32_t i = 0; i < 2; ++i) dropout_(embedded[i], dropout_at(embedding_unit(), i, batch));
  return embedded;
}

void T5::add_embedding_gradient(const Values& d_values, const Batch& batch, Gradients embedding) const {
  embed_backward(after_dropout(d_values[0], dropout_at(embedding_unit(), 0, batch)), batch.source, embedding);
  embed_backward(after_dropout(d_values[1], dropout_at(embedding_unit(), 1, batch)), batch.tokens, embedding);
}

Dropout T5::dropout_at(size_t unit, uint32_t place, const Batch& batch) const {
  if (!batch.dropout) return {};
  return {.rate = config().t5->dropout_rate,
          .seed = *batch.dropout,
          .sequences = batch.tokens.size(0),
          .place = kDropoutPlaces * static_cast<uint32_t>(unit) + place};
}

Dropout T5::head_dropout(const Batch& batch) const { return dropout_at(head_unit(), 0, batch); }

Values T5::run_layer(Weights weights, const Values& inputs, LayerActivations* activations, Recompute recompute,
                     const Batch& batch) const {
  Saved saved{.inputs = inputs,
              .padding = batch.source.eq(config().t5->pad_token_id),
              .dropout = dropout_at(layer_unit(weights.layer.value()), 0, batch)};
  const Block block{config(), matmuls(), t5_layer(config(), weights.layer.value()), weights};
  Values outputs = block.forward(saved);
  if (activations == nullptr) return outputs;
  saved.drop(recompute);
  activations->of_family = std::move(saved);
  return outputs;
}

Values T5::run_layer_backward(Weights weights, const Values& d_outputs, LayerActivations& activations,
                              Gradients gradients) const {
  auto saved = std::any_cast<Saved>(std::exchange(activations, {}).of_family);
  const Block block{config(), matmuls(), t5_layer(config(), weights.layer.value()), weights};
  if (!saved.self.q.defined()) block.forward(saved);
  return block.backward(d_outputs, std::move(saved), gradients);
}

Values T5::run_cached(Weights weights, const Values& inputs, const Batch& batch, T5Cache& cache) const {
  Saved unused{.inputs = inputs, .padding = batch.source.eq(config().t5->pad_token_id)};
  const Block block{config(), matmuls(), t5_layer(config(), weights.layer.value()), weights};
  return block.forward(unused, &cache);
}

at::Tensor T5::logits(Weights head, const at::Tensor& embedding, const at::Tensor& x) const {
  at::Tensor normed = rms_norm_forward(x.reshape({-1, config().hidden_size}), head[0], config().rms_norm_eps).y;
  if (tied_head()) normed.mul_(1 / std::sqrt(static_cast<double>(config().hidden_size)));
  return matmuls().forward(normed, tied_head() ? embedding : head[1]);
}

}  // namespace mpzero::model
