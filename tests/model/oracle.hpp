#pragma once

// A decoder layer composed of LibTorch operators and differentiated by autograd: the reference for the explicit
// backward pass.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <utility>
#include <vector>

#include "model/architecture/architectures.hpp"
#include "model/decoder.hpp"
#include "model/rope_table.hpp"

namespace mpzero::model::oracle {

// Returns x [..., D] rotated as in transformers, with rotate_half.
inline at::Tensor rope(const at::Tensor& x, const RopeTables& tables) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor rotated = at::cat({x.narrow(-1, half, half).neg(), x.narrow(-1, 0, half)}, -1);
  const at::Tensor cos = at::cat({tables.cos, tables.cos}, -1).unsqueeze(1);
  const at::Tensor sin = at::cat({tables.sin, tables.sin}, -1).unsqueeze(1);
  return x * cos + rotated * sin;
}

inline at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal = true,
                            std::optional<double> scale = {}) {
  const int64_t group = q.size(2) / k.size(2);
  const auto heads = [](const at::Tensor& x, int64_t repeat) { return x.repeat_interleave(repeat, 2).transpose(1, 2); };
  return at::scaled_dot_product_attention(heads(q, 1), heads(k, group), heads(v, group), {}, 0.0, causal, scale)
      .transpose(1, 2);
}

// Returns the layer's own weights, plus s B A for weights with adapters.
inline std::vector<at::Tensor> merged(const ModelConfig& config, std::vector<at::Tensor> w) {
  if (!config.lora) return w;
  const std::vector<LayerParameter> own = find_architecture(config.model_type, "oracle").layer_parameters(config);
  for (const std::vector<LoraAdapter>& adapters : lora_layout(*config.lora, own)) {
    for (const LoraAdapter& adapter : adapters) {
      w[adapter.weight] = w[adapter.weight] + config.lora->scale() * w[adapter.b].matmul(w[adapter.a]);
    }
  }
  return w;
}

// Computes layer `index` of the model. `all`: weights in the order of the layer's unit.
inline at::Tensor layer(ModelConfig config, const std::vector<at::Tensor>& all, const at::Tensor& x,
                        int64_t index = 0) {
  const std::vector<at::Tensor> w = merged(config, all);
  const LayerLayout layout(find_architecture(config.model_type, "oracle").layer_parameters(config));
  const std::optional<double> scale = std::exchange(config.attention_multiplier, {});
  const RopeTables tables = RopeTable(config).get(x.size(1), x.options(), config.rotates(static_cast<size_t>(index)));
  const auto of = [&](LayerRole role) { return layout.has(role) ? w[layout[role]] : at::Tensor(); };
  const auto norm = [&](const at::Tensor& y, LayerRole role) {
    return layout.has(role) ? at::rms_norm(y, of(role).sizes(), of(role), config.rms_norm_eps) : y;
  };
  const auto heads = [&](const at::Tensor& y) {
    return y.reshape({x.size(0), x.size(1), y.size(2) / config.head_dim, config.head_dim});
  };
  // Computes one matmul, regardless of whether the model has one weight or several weights.
  const auto project = [&](const at::Tensor& y, LayerRole first, size_t count, const std::vector<int64_t>& sizes) {
    const auto begin = w.begin() + static_cast<std::ptrdiff_t>(layout[first]);
    const std::vector<at::Tensor> weights(begin, begin + static_cast<std::ptrdiff_t>(count));
    return y.matmul(at::cat(weights).t()).split_with_sizes(sizes, -1);
  };
  const auto qkv = project(norm(x, LayerRole::kInputNorm), LayerRole::kQuery, layout.count_of_qkv(),
                           {config.query_size(), config.key_value_size(), config.key_value_size()});
  const auto biased = [&](size_t i, LayerRole bias) { return layout.has(bias) ? qkv[i] + of(bias) : qkv[i]; };
  const auto normed_heads = [&](const at::Tensor& y, LayerRole token, LayerRole head) {
    return rope(norm(heads(norm(y, token)), head), tables);
  };
  using enum LayerRole;
  const at::Tensor attended =
      attention(normed_heads(biased(0, kQueryBias), kQueryTokenNorm, kQueryNorm),
                normed_heads(biased(1, kKeyBias), kKeyTokenNorm, kKeyNorm), heads(biased(2, kValueBias)), true, scale)
          .reshape({x.size(0), x.size(1), -1});
  const at::Tensor h = x + norm(attended.matmul(of(kOutput).t()), kAttentionOutputNorm) * config.residual_multiplier;
  const auto gate_up = project(norm(h, kPostAttentionNorm), kGate, layout.count_of_gate_up(),
                               {config.intermediate_size, config.intermediate_size});
  return h +
         norm((at::silu(gate_up[0]) * gate_up[1]).matmul(of(kDown).t()), kMlpOutputNorm) * config.residual_multiplier;
}

// Returns the gradients of sum(output * seed) with respect to `inputs`.
inline std::vector<at::Tensor> gradients(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                                         const at::Tensor& seed) {
  return torch::autograd::grad({output}, inputs, {seed});
}

}  // namespace mpzero::model::oracle
