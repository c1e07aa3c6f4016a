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

// Weights of a layer by role. Queries, keys and values form one matrix, and gate and up form one matrix. Weights that
// the model lacks are undefined.
struct LayerWeights {
  at::Tensor input_norm, attention_output_norm, post_attention_norm, mlp_output_norm;
  Operand qkv, output, gate_up, down;
  at::Tensor qkv_bias;
  QkNormWeights qk_norm;     // over each head
  QkNormWeights token_norm;  // over all heads of a token: [heads * D], [kv_heads * D]
};

// `layer`: weights in the order of the layer's unit, adjacent in its flat buffer. `eps`: epsilon of the query and key
// norms. `forms`: forms of FP8 weights that the matmuls read.
inline LayerWeights by_role(std::span<const at::Tensor> layer, const LayerLayout& layout, double eps,
                            const LayerCasts& casts = {}, fp8::Forms forms = fp8::Forms::kRows) {
  const auto optional = [&](LayerRole role) { return layout.has(role) ? layer[layout[role]] : at::Tensor(); };
  using enum LayerProduct;
  return {.input_norm = optional(LayerRole::kInputNorm),
          .attention_output_norm = optional(LayerRole::kAttentionOutputNorm),
          .post_attention_norm = optional(LayerRole::kPostAttentionNorm),
          .mlp_output_norm = optional(LayerRole::kMlpOutputNorm),
          .qkv = casts.weight(kQkv, join_rows(layer.subspan(layout[LayerRole::kQuery], layout.count_of_qkv())), forms),
          .output = casts.weight(kOutput, layer[layout[LayerRole::kOutput]], forms),
          .gate_up = casts.weight(kGateUp,
                                  join_rows(layer.subspan(layout[LayerRole::kGate], layout.count_of_gate_up())), forms),
          .down = casts.weight(kDown, layer[layout[LayerRole::kDown]], forms),
          .qkv_bias = layout.has(LayerRole::kQueryBias) ? join_rows(layer.subspan(layout[LayerRole::kQueryBias], 3))
                                                        : at::Tensor(),
          .qk_norm = {optional(LayerRole::kQueryNorm), optional(LayerRole::kKeyNorm), eps},
          .token_norm = {optional(LayerRole::kQueryTokenNorm), optional(LayerRole::kKeyTokenNorm), eps}};
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
};

// Attention of rotated queries [B, T, heads, D] over keys and values [B, T, kv_heads, D].
using Attend = std::function<AttentionOutput(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)>;

// Computes h = x + attention(norm(x)) and returns h + mlp(norm(h)), for x [B, T, H]. The attention mask is s.mask. `s`
// receives all tensors that the backward pass may read. `inputs`: forms in which `s` keeps FP8 inputs of matmuls.
// Inference passes an `attend` function with a KV cache.
at::Tensor layer_forward(const Layer& layer, const at::Tensor& x, LayerActivations& s, fp8::Forms inputs,
                         const Attend& attend = {});

}  // namespace mpzero::model
