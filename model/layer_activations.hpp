#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/architecture/config.hpp"
#include "model/architecture/layer_layout.hpp"
#include "model/fp8/operand.hpp"
#include "model/kernels/attention.hpp"
#include "model/layer_casts.hpp"
#include "model/recompute.hpp"

namespace mpzero::model {

// The tensors that a decoder layer's forward saves for its backward, which frees each tensor after its last use. N = B
// * T tokens; I: intermediate size. layer_activations() tells how long each is kept. Operands in FP8 are kept in the
// form that weight gradients read.
struct LayerActivations {
  at::Tensor x;                 // [B, T, H], the layer's input
  Operand normed;               // [N, H], x after its norm
  at::Tensor rstd;              // [N]
  at::Tensor qkv;               // [B, T, heads + 2 * kv_heads, D], before norms and rotation
  at::Tensor qk;                // [B, T, heads + kv_heads, D], after them; without norms a view of qkv
  AttentionOutput attended;     // out [B, T, heads, D]
  at::Tensor attended_maximum;  // of out, which is cast to FP8 twice; dropped by kFull
  at::Tensor h;                 // [N, H], x plus attention
  Operand h_normed;             // [N, H]
  at::Tensor h_rstd;            // [N]
  at::Tensor gate_up;           // [N, 2I]
  Operand activated;            // [N, I]

  // Frees the tensors that backward recomputes at this level.
  void drop(Recompute recompute);
  // The tensors that exist.
  std::vector<at::Tensor> tensors() const;
};

// One member of LayerActivations: a tensor, or an operand of the products of `product`.
struct LayerActivation {
  std::string_view name;
  at::Tensor& (*tensor)(LayerActivations&) = nullptr;
  Operand& (*operand)(LayerActivations&) = nullptr;
  LayerProduct product{};
  // Elements per token; 0 if it is a view of another tensor.
  int64_t (*elements)(const ModelConfig&, const LayerLayout&);
  // In accumulate_type() of the activations' type.
  bool wide = false;
  // The first level that drops it; std::nullopt: always kept.
  std::optional<Recompute> dropped_from = Recompute::kFull;
};

// All tensors except AttentionOutput::saved, whose size depends on the attention kernel and which kFull drops.
std::span<const LayerActivation> layer_activations();
// Bytes of one member; N = `tokens`. `products`: those that read FP8.
int64_t bytes(const LayerActivation& activation, const ModelConfig& config, const LayerLayout& layout, int64_t tokens,
              at::ScalarType type, const Fp8Products& products = {}, fp8::Scaling scaling = {});
bool is_kept(const LayerActivation& activation, Recompute recompute);

}  // namespace mpzero::model
