#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>

#include "model/adapters.hpp"
#include "model/architecture/config.hpp"
#include "model/architecture/layer_layout.hpp"
#include "model/kernels/qk_rope.hpp"
#include "model/layer_activations.hpp"
#include "model/layer_casts.hpp"
#include "model/matmuls.hpp"
#include "model/rows.hpp"

namespace mpzero::model {

// Weights of a layer. Queries, keys and values form one matrix, and gate and up form one matrix.
struct LayerWeights {
  std::span<const at::Tensor> unit;  // all weights, in the order of the layer's unit
  Operand qkv, output, gate_up, down;
  at::Tensor qkv_bias;  // undefined without biases
};

// `layer`: weights in the order of the layer's unit, adjacent in its flat buffer, which must outlive the result.
// `forms`: forms of FP8 weights that the matmuls read.
inline LayerWeights by_role(std::span<const at::Tensor> layer, const LayerLayout& layout, const LayerCasts& casts = {},
                            fp8::Forms forms = fp8::Forms::kRows) {
  using enum LayerProduct;
  return {.unit = layer,
          .qkv = casts.weight(kQkv, join_rows(layer.subspan(layout[LayerRole::kQuery], layout.count_of_qkv())), forms),
          .output = casts.weight(kOutput, layer[layout[LayerRole::kOutput]], forms),
          .gate_up = casts.weight(kGateUp,
                                  join_rows(layer.subspan(layout[LayerRole::kGate], layout.count_of_gate_up())), forms),
          .down = casts.weight(kDown, layer[layout[LayerRole::kDown]], forms),
          .qkv_bias = layout.has(LayerRole::kQueryBias) ? join_rows(layer.subspan(layout[LayerRole::kQueryBias], 3))
                                                        : at::Tensor()};
}

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

// Attention of rotated queries [B, T, heads, D] over keys and values [B, T, kv_heads, D].
using Attend = std::function<AttentionOutput(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)>;

// Computes h = x + attention(norm(x)) and returns h + mlp(norm(h)), for x [B, T, H]. The attention mask is s.mask. `s`
// receives all tensors that the backward pass may read. `inputs`: forms in which `s` keeps FP8 inputs of matmuls.
// Inference passes an `attend` function with a KV cache.
at::Tensor layer_forward(const Layer& layer, const at::Tensor& x, LayerActivations& s, fp8::Forms inputs,
                         const Attend& attend = {});

}  // namespace mpzero::model
