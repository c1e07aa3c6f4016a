#pragma once

#include <ATen/core/Tensor.h>

#include <any>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/architecture/config.hpp"
#include "model/architecture/layer_layout.hpp"
#include "model/fp8/operand.hpp"
#include "model/kernels/attention.hpp"
#include "model/kernels/dropout.hpp"

namespace mpzero::model {

// Levels of activation checkpointing. If matmuls and attention are reproducible, gradients are bitwise identical across
// the levels kNone to kFull, and across the levels kTiled to kHost.
enum class Recompute : uint8_t {
  kNone,           // saves all activations
  kSelective,      // saves the results of matmuls and attention; recomputes the rest
  kAttention,      // saves the layer's input and the result of attention
  kFull,           // saves only the layer's input; reruns the forward pass
  kTiled,          // like kFull, but runs the MLP in tiles of tokens
  kHostAttention,  // like kHost, but the caller also keeps the result of attention in host memory
  kHost,           // like kTiled, but the caller keeps the layer's input in host memory
};

// Returns "none", "selective", "attention", ...
constexpr std::string_view name(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "none";
    case Recompute::kSelective:
      return "selective";
    case Recompute::kAttention:
      return "attention";
    case Recompute::kFull:
      return "full";
    case Recompute::kTiled:
      return "tiled";
    case Recompute::kHostAttention:
      return "host_attention";
    case Recompute::kHost:
      break;
  }
  return "host";
}

inline constexpr std::array kRecomputes = {Recompute::kNone, Recompute::kSelective, Recompute::kAttention,
                                           Recompute::kFull, Recompute::kTiled,     Recompute::kHostAttention,
                                           Recompute::kHost};

// Values indexed by recompute level.
template <typename T>
struct ByLevel {
  std::array<T, kRecomputes.size()> values{};

  const T& operator[](Recompute level) const { return values[static_cast<size_t>(level)]; }
  T& operator[](Recompute level) { return values[static_cast<size_t>(level)]; }
  bool operator==(const ByLevel&) const = default;
};

// Returns the levels that a model supports. With FP8 or adapters, kHost and kHostAttention do not use tiling, because
// each tile would have separate FP8 scales and separate adapter dropout. T5 supports only kNone, kSelective and kFull,
// because its layers share inputs and its decoder layers have two attentions.
std::vector<Recompute> recompute_levels(const ModelConfig& config, bool fp8);

// Returns true if the caller keeps activations in host memory at this level.
constexpr bool keeps_on_host(Recompute recompute) {
  return recompute == Recompute::kHostAttention || recompute == Recompute::kHost;
}
constexpr bool runs_tiles(Recompute recompute) { return recompute == Recompute::kTiled || keeps_on_host(recompute); }

// Maximum number of layers whose activations stay on the device at kHost and kHostAttention.
inline constexpr int64_t kLayersOnDevice = 2;

// Returns true if this level keeps the result of attention but not the results of matmuls.
constexpr bool keeps_attention(Recompute recompute) {
  return recompute == Recompute::kAttention || recompute == Recompute::kHostAttention;
}
constexpr bool keeps_input_only(Recompute recompute) {
  return recompute == Recompute::kFull || recompute == Recompute::kTiled || recompute == Recompute::kHost;
}

// Tensors saved by a norm.
struct SavedNorm {
  at::Tensor x;     // [N, H]: input of a norm of the output of attention or MLP; undefined for other norms
  at::Tensor rstd;  // [N], or [B, T] for a norm over all heads of a token
};

// Tensors that a decoder layer's forward pass saves for the backward pass, which frees each tensor after its last use.
// N = B * T tokens; I: intermediate size. FP8 operands are kept in the form that weight gradients read.
struct LayerActivations {
  Recompute recompute{};     // level of the forward pass
  AttentionMask mask;        // mask of the forward pass
  Dropout dropout{};         // dropout of the adapters' input
  int64_t tile = 0;          // MLP rows per tile; 0: no tiling
  ByRole<SavedNorm> norms;   // all norms except those of each query and key head
  at::Tensor x;              // [B, T, H]: the layer's input
  Operand normed;            // [N, H]: x after its norm
  at::Tensor qkv;            // [B, T, heads + 2 * kv_heads, D], before norms and RoPE; without norms, RoPE is in place
  at::Tensor qk;             // [B, T, heads + kv_heads, D], after norms and RoPE; a view of qkv without norms
  AttentionOutput attended;  // out: [B, T, heads, D]; if sequences are sharded: all tokens, this rank's heads
  // Sequence parallelism. `exchanged` replaces qk: rotated queries, keys and values of all tokens, for this rank's
  // heads. `attended_tokens`: attention output of this rank's tokens, for all heads.
  std::array<at::Tensor, 3> exchanged;
  at::Tensor attended_tokens;
  at::Tensor attended_maximum;  // amax of attended.out (cast to FP8 twice); freed with attended.out
  at::Tensor h;                 // [N, H]: x plus the attention output
  Operand h_normed;             // [N, H]
  at::Tensor gate_up;           // [N, 2I]
  Operand activated;            // [N, I]
  // Results of LayerAdapters::forward, indexed by LayerProduct.
  std::array<at::Tensor, 4> low_rank;
  std::any of_family;  // replaces all fields above for other kinds of layers (T5)

  // Frees the tensors that the backward pass recomputes at the level `recompute`.
  void drop();
};

}  // namespace mpzero::model
