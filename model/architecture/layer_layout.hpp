#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace mpzero::model {

// The role of a weight in a decoder layer. A layer without kKey and kValue stores all three in one kQuery weight; one
// without kUp stores both in one kGate weight. All norms are optional: of the inputs and outputs of attention and MLP,
// and over each query and key head, or over all query heads and all key heads of a token.
enum class LayerRole : uint8_t {
  kInputNorm,
  kQuery,
  kKey,
  kValue,
  kQueryBias,
  kKeyBias,
  kValueBias,
  kQueryNorm,
  kKeyNorm,
  kQueryTokenNorm,
  kKeyTokenNorm,
  kOutput,
  kAttentionOutputNorm,
  kPostAttentionNorm,
  kGate,
  kUp,
  kDown,
  kMlpOutputNorm,
  kCount
};

struct LayerParameter {
  LayerRole role;
  std::string_view name;  // after "model.layers.<i>."
  std::vector<int64_t> shape;
};

// The position of each role's weight in a layer's unit.
class LayerLayout {
 public:
  // Throws Failure unless kQuery, kKey and kValue are adjacent, likewise their biases (all or none), and kGate and kUp,
  // if they are separate weights: the decoder processes each of these groups in one matrix product.
  explicit LayerLayout(std::span<const LayerParameter> parameters);

  bool has(LayerRole role) const { return (*this)[role] != kAbsent; }
  // Number of weights, starting at kQuery or kGate, that are multiplied as one matrix.
  size_t count_of_qkv() const { return has(LayerRole::kKey) ? 3 : 1; }
  size_t count_of_gate_up() const { return has(LayerRole::kUp) ? 2 : 1; }
  size_t operator[](LayerRole role) const { return index_[static_cast<size_t>(role)]; }

 private:
  static constexpr size_t kAbsent = static_cast<size_t>(-1);
  std::array<size_t, static_cast<size_t>(LayerRole::kCount)> index_;
};

}  // namespace mpzero::model
