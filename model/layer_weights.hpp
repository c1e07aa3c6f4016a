#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "model/architecture/layer_layout.hpp"
#include "model/kernels/qk_rope.hpp"
#include "model/rows.hpp"

namespace mpzero::model {

// A layer's weights by their role. Queries, keys and values are one matrix, and gate and up are.
struct LayerWeights {
  at::Tensor input_norm, qkv, output, post_attention_norm, gate_up, down;
  at::Tensor qkv_bias;  // undefined where the model has none
  QkNormWeights qk_norm;
};

// `layer`: the weights in the order of the layer's unit, adjacent in its flat buffer. `eps`: of the norms of heads.
inline LayerWeights by_role(std::span<const at::Tensor> layer, const LayerLayout& layout, double eps) {
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

}  // namespace mpzero::model
