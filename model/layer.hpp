#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "model/adapters.hpp"
#include "model/architecture/config.hpp"
#include "model/architecture/layer_layout.hpp"
#include "model/kernels/qk_rope.hpp"
#include "model/layer_activations.hpp"
#include "model/layer_casts.hpp"
#include "model/layer_weights.hpp"
#include "model/matmuls.hpp"

namespace mpzero::model {

// Inputs and settings of one layer's forward and backward.
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

// x + attention(norm(x)), then h + mlp(norm(h)): x [B, T, H] -> [B, T, H]. Reads s.mask; `s` receives everything that
// backward may read. `inputs`: the forms in which s keeps inputs of products in FP8. Inference passes an `attend` with
// a cache.
at::Tensor layer_forward(const Layer& layer, const at::Tensor& x, LayerActivations& s, fp8::Forms inputs,
                         const Attend& attend = {});

}  // namespace mpzero::model
