#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "model/architecture/layer_layout.hpp"
#include "model/kernels/qk_rope.hpp"
#include "model/layer_casts.hpp"
#include "model/rows.hpp"

namespace mpzero::model {

// A layer's weights by their role. Queries, keys and values are one matrix, and gate and up are.
struct LayerWeights {
  at::Tensor input_norm, post_attention_norm;
  Operand qkv, output, gate_up, down;
  at::Tensor qkv_bias;  // undefined where the model has none
  QkNormWeights qk_norm;
};

// `layer`: the weights in the order of the layer's unit, adjacent in its flat buffer. `eps`: of the norms of heads.
// `casts`: of the layer; the products read these forms.
inline LayerWeights by_role(std::span<const at::Tensor> layer, const LayerLayout& layout, double eps,
                            const LayerCasts& casts = {}, fp8::Forms forms = fp8::Forms::kRows) {
  const auto optional = [&](LayerRole role) { return layout.has(role) ? layer[layout[role]] : at::Tensor(); };
  using enum LayerProduct;
  return {.input_norm = layer[layout[LayerRole::kInputNorm]],
          .post_attention_norm = layer[layout[LayerRole::kPostAttentionNorm]],
          .qkv = casts.weight(kQkv, join_rows(layer.subspan(layout[LayerRole::kQuery], 3)), forms),
          .output = casts.weight(kOutput, layer[layout[LayerRole::kOutput]], forms),
          .gate_up = casts.weight(kGateUp, join_rows(layer.subspan(layout[LayerRole::kGate], 2)), forms),
          .down = casts.weight(kDown, layer[layout[LayerRole::kDown]], forms),
          .qkv_bias = layout.has(LayerRole::kQueryBias) ? join_rows(layer.subspan(layout[LayerRole::kQueryBias], 3))
                                                        : at::Tensor(),
          .qk_norm = {optional(LayerRole::kQueryNorm), optional(LayerRole::kKeyNorm), eps}};
}

}  // namespace mpzero::model
