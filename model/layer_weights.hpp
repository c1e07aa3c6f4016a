#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "model/architecture/layer_layout.hpp"
#include "model/kernels/qk_rope.hpp"
#include "model/layer_casts.hpp"
#include "model/rows.hpp"

namespace mpzero::model {

// A layer's weights by their role. Queries, keys and values are one matrix, and gate and up are. What the model does
// not have is undefined.
struct LayerWeights {
  at::Tensor input_norm, attention_output_norm, post_attention_norm, mlp_output_norm;
  Operand qkv, output, gate_up, down;
  at::Tensor qkv_bias;
  QkNormWeights qk_norm;     // over each head
  QkNormWeights token_norm;  // over all heads of a token: [heads * D], [kv_heads * D]
};

// `layer`: the weights in the order of the layer's unit, adjacent in its flat buffer. `eps`: of the norms of heads.
// `casts`: of the layer; the products read these forms.
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

}  // namespace mpzero::model
