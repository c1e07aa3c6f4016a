#pragma once

// A decoder layer made of LibTorch's operators, differentiated by autograd: the reference for the explicit backward.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "model/decoder.hpp"
#include "model/rope_table.hpp"

namespace mpzero::model::oracle {

// x [..., D] rotated as in transformers, with rotate_half.
inline at::Tensor rope(const at::Tensor& x, const RopeTables& tables) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor rotated = at::cat({x.narrow(-1, half, half).neg(), x.narrow(-1, 0, half)}, -1);
  const at::Tensor cos = at::cat({tables.cos, tables.cos}, -1).unsqueeze(1);
  const at::Tensor sin = at::cat({tables.sin, tables.sin}, -1).unsqueeze(1);
  return x * cos + rotated * sin;
}

inline at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal = true) {
  const int64_t group = q.size(2) / k.size(2);
  const auto heads = [](const at::Tensor& x, int64_t repeat) { return x.repeat_interleave(repeat, 2).transpose(1, 2); };
  return at::scaled_dot_product_attention(heads(q, 1), heads(k, group), heads(v, group), {}, 0.0, causal)
      .transpose(1, 2);
}

// w: the weights in the order of the layer's unit.
inline at::Tensor layer(const ModelConfig& config, const std::vector<at::Tensor>& w, const at::Tensor& x) {
  const bool qk_norm = config.model_type == "qwen3", biased = config.model_type == "qwen2";
  const RopeTables tables = RopeTable(config).get(x.size(1), x.options());
  const auto norm = [&](const at::Tensor& y, const at::Tensor& weight) {
    return at::rms_norm(y, weight.sizes(), weight, config.rms_norm_eps);
  };
  const auto heads = [&](const at::Tensor& y) {
    return y.reshape({x.size(0), x.size(1), y.size(2) / config.head_dim, config.head_dim});
  };
  const at::Tensor normed = norm(x, w[0]);
  const auto project = [&](size_t i) {
    const at::Tensor product = normed.matmul(w[i].t());
    return heads(biased ? product + w[i + 3] : product);
  };
  at::Tensor q = project(1), k = project(2);
  const at::Tensor v = project(3);
  size_t next = biased ? 7 : 4;
  if (qk_norm) {
    q = norm(q, w[next++]);
    k = norm(k, w[next++]);
  }
  const at::Tensor attended = attention(rope(q, tables), rope(k, tables), v).reshape({x.size(0), x.size(1), -1});
  const at::Tensor h = x + attended.matmul(w[next++].t());
  const at::Tensor h_normed = norm(h, w[next++]);
  const at::Tensor gate = h_normed.matmul(w[next].t()), up = h_normed.matmul(w[next + 1].t());
  return h + (at::silu(gate) * up).matmul(w[next + 2].t());
}

// The gradients of sum(output * seed) in `inputs`.
inline std::vector<at::Tensor> gradients(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                                         const at::Tensor& seed) {
  return torch::autograd::grad({output}, inputs, {seed});
}

}  // namespace mpzero::model::oracle
