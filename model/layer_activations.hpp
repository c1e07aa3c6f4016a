#pragma once

#include <ATen/core/Tensor.h>

#include <any>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/fp8/operand.hpp"
#include "model/kernels/attention.hpp"
#include "model/kernels/dropout.hpp"

namespace mpzero::model {

// Which activations a decoder layer keeps from its forward for its backward. The gradients have the same bits at every
// level but kTiled, as long as the bits of matrix products and attention are reproducible.
enum class Recompute : uint8_t {
  kNone,       // everything
  kSelective,  // the results of matrix products and attention; backward recomputes the rest
  kFull,       // its input only; backward runs the whole forward again
  kTiled,      // likewise, and the MLP runs by tiles of tokens; without products in FP8 and adapters
};

// "none", "selective", "full", "tiled".
constexpr std::string_view name(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "none";
    case Recompute::kSelective:
      return "selective";
    case Recompute::kFull:
      return "full";
    case Recompute::kTiled:
      break;
  }
  return "tiled";
}

inline constexpr std::array kRecomputes = {Recompute::kNone, Recompute::kSelective, Recompute::kFull,
                                           Recompute::kTiled};

constexpr bool keeps_input_only(Recompute recompute) {
  return recompute == Recompute::kFull || recompute == Recompute::kTiled;
}

// The level of a name; std::nullopt for other names.
constexpr std::optional<Recompute> recompute_of(std::string_view text) {
  for (const Recompute recompute : kRecomputes) {
    if (name(recompute) == text) return recompute;
  }
  return std::nullopt;
}

// What a norm of the output of attention or MLP reads; undefined where the model has none.
struct NormedOutput {
  at::Tensor x;     // [N, H]
  at::Tensor rstd;  // [N]
};

// The tensors that a decoder layer's forward saves for its backward, which frees each tensor after its last use. N = B
// * T tokens; I: intermediate size. Recompute tells how long each is kept. Operands in FP8 are kept in the
// form that weight gradients read.
struct LayerActivations {
  AttentionMask mask;         // of the forward
  Dropout dropout{};          // likewise, of its adapters' input
  int64_t tile = 0;           // rows of the MLP that run at a time; 0: all
  at::Tensor x;               // [B, T, H], the layer's input
  Operand normed;             // [N, H], x after its norm
  at::Tensor rstd;            // [N]
  at::Tensor q_rstd, k_rstd;  // [B, T], of norms over all heads of a token
  at::Tensor qkv;             // [B, T, heads + 2 * kv_heads, D], before norms and rotation
  at::Tensor qk;              // [B, T, heads + kv_heads, D], after them; without norms a view of qkv
  AttentionOutput attended;   // out [B, T, heads, D]; of shared sequences, of all their tokens and this rank's heads
  // Of shared sequences: rotated queries, keys and values of all tokens and this rank's heads, instead of qk;
  // `attended` of this rank's tokens and all heads.
  std::array<at::Tensor, 3> exchanged;
  at::Tensor attended_tokens;
  at::Tensor attended_maximum;  // of out, which is cast to FP8 twice; dropped with all but x
  NormedOutput attention_output, mlp_output;
  at::Tensor h;        // [N, H], x plus attention
  Operand h_normed;    // [N, H]
  at::Tensor h_rstd;   // [N]
  at::Tensor gate_up;  // [N, 2I]
  Operand activated;   // [N, I]
  // By LayerProduct: see LayerAdapters::forward.
  std::array<at::Tensor, 4> low_rank;
  std::any of_family;  // instead of all above: what a layer of another kind saves

  // Frees the tensors that backward recomputes at this level.
  void drop(Recompute recompute);
  // The tensors that exist.
  std::vector<at::Tensor> tensors() const;
};

}  // namespace mpzero::model
