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

// Activation checkpointing: the activations that a layer keeps for its backward. Gradients are bit-identical at all
// levels except kTiled and kHost, which agree with each other, if matrix products and attention are reproducible.
enum class Recompute : uint8_t {
  kNone,       // everything
  kSelective,  // the results of matrix products and attention; backward recomputes the rest
  kFull,       // the layer's input only; backward reruns the forward
  kTiled,      // like kFull, but the MLP runs in tiles of tokens; not with FP8 or adapters
  kHost,       // like kTiled to the layer; its caller keeps the input in host memory
};

// "none", "selective", "full", "tiled", "host".
constexpr std::string_view name(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "none";
    case Recompute::kSelective:
      return "selective";
    case Recompute::kFull:
      return "full";
    case Recompute::kTiled:
      return "tiled";
    case Recompute::kHost:
      break;
  }
  return "host";
}

inline constexpr std::array kRecomputes = {Recompute::kNone, Recompute::kSelective, Recompute::kFull, Recompute::kTiled,
                                           Recompute::kHost};

constexpr bool runs_tiles(Recompute recompute) {
  return recompute == Recompute::kTiled || recompute == Recompute::kHost;
}

// Inputs of layers at kHost that stay on the device, at most.
inline constexpr int64_t kInputsOnDevice = 2;

constexpr bool keeps_input_only(Recompute recompute) { return recompute == Recompute::kFull || runs_tiles(recompute); }

// Parses a level's name; std::nullopt for other names.
constexpr std::optional<Recompute> recompute_of(std::string_view text) {
  for (const Recompute recompute : kRecomputes) {
    if (name(recompute) == text) return recompute;
  }
  return std::nullopt;
}

// Saved by a norm of attention's or the MLP's output; undefined if the model has no such norm.
struct NormedOutput {
  at::Tensor x;     // [N, H]
  at::Tensor rstd;  // [N]
};

// The tensors that a decoder layer's forward saves for its backward, which frees each tensor after its last use. N = B
// * T tokens; I: intermediate size. Recompute determines how long each is kept. FP8 operands are kept in the form that
// weight gradients read.
struct LayerActivations {
  AttentionMask mask;         // of the forward
  Dropout dropout{};          // of the forward's adapter input
  int64_t tile = 0;           // MLP rows per tile; 0: all
  at::Tensor x;               // [B, T, H], the layer's input
  Operand normed;             // [N, H], x after its norm
  at::Tensor rstd;            // [N]
  at::Tensor q_rstd, k_rstd;  // [B, T], of norms over all heads of a token
  at::Tensor qkv;             // [B, T, heads + 2 * kv_heads, D], before norms and rotation
  at::Tensor qk;              // [B, T, heads + kv_heads, D], after them; without norms a view of qkv
  AttentionOutput attended;   // out [B, T, heads, D]; if sequences are shared: all tokens, this rank's heads
  // Sequence parallelism. `exchanged`: rotated queries, keys and values of all tokens and this rank's heads, instead of
  // qk. `attended_tokens`: attention's output for this rank's tokens and all heads.
  std::array<at::Tensor, 3> exchanged;
  at::Tensor attended_tokens;
  at::Tensor attended_maximum;  // of out, which is cast to FP8 twice; dropped at kFull and kTiled
  NormedOutput attention_output, mlp_output;
  at::Tensor h;        // [N, H], x plus attention
  Operand h_normed;    // [N, H]
  at::Tensor h_rstd;   // [N]
  at::Tensor gate_up;  // [N, 2I]
  Operand activated;   // [N, I]
  // Results of LayerAdapters::forward, by LayerProduct.
  std::array<at::Tensor, 4> low_rank;
  std::any of_family;  // replaces all of the above for other kinds of layers (T5)

  // Frees the tensors that backward recomputes at this level.
  void drop(Recompute recompute);
  // All defined tensors.
  std::vector<at::Tensor> tensors() const;
};

}  // namespace mpzero::model
