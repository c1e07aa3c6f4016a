#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/architecture/config.hpp"
#include "model/architecture/layer_layout.hpp"
#include "model/kernels/attention.hpp"
#include "model/recompute.hpp"

namespace mpzero::model {

// What a decoder layer's forward keeps for its backward, which frees each tensor after its last use. N = B * T tokens;
// I: intermediate size. How long each is kept: layer_activations().
struct LayerActivations {
  at::Tensor x;              // [B, T, H], the layer's input
  at::Tensor normed;         // [N, H], x after its norm
  at::Tensor rstd;           // [N]
  at::Tensor qkv;            // [B, T, heads + 2 * kv_heads, D], before norms and rotation
  at::Tensor qk;             // [B, T, heads + kv_heads, D], after them; without norms a view of qkv
  AttentionOutput attended;  // out [B, T, heads, D]
  at::Tensor h;              // [N, H], x plus attention
  at::Tensor h_normed;       // [N, H]
  at::Tensor h_rstd;         // [N]
  at::Tensor gate_up;        // [N, 2I]
  at::Tensor activated;      // [N, I]

  // Frees what this level computes again in backward.
  void drop(Recompute recompute);
  // Those that are there.
  std::vector<at::Tensor> tensors() const;
};

// One tensor of LayerActivations.
struct LayerActivation {
  std::string_view name;
  at::Tensor& (*of)(LayerActivations&);
  // Elements for each token; 0 where it is a view of another.
  int64_t (*elements)(const ModelConfig&, const LayerLayout&);
  // In accumulate_type() of the activations' type.
  bool wide = false;
  // The first level that drops it; none: always kept.
  std::optional<Recompute> dropped_from = Recompute::kFull;
};

// Each of them, but for AttentionOutput::saved, of which the attention kernel decides, and which kFull drops.
std::span<const LayerActivation> layer_activations();
// Bytes of one of them; N = `tokens`.
int64_t bytes(const LayerActivation& activation, const ModelConfig& config, const LayerLayout& layout, int64_t tokens,
              at::ScalarType type);
bool is_kept(const LayerActivation& activation, Recompute recompute);

}  // namespace mpzero::model
