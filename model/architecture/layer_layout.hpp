#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace mpzero::model {

// Role of a weight in a decoder layer. Without kKey and kValue, kQuery contains all three projections; without kUp,
// kGate contains the gate and up projections. All norms are optional. Norms are applied to the inputs or outputs of
// attention and MLP, to each query and key head, or to all query heads and all key heads of a token.
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

// Norms of queries and keys. A layer has both norms of a pair or neither.
inline constexpr std::array kQueryKeyNorms = {std::pair(LayerRole::kQueryNorm, LayerRole::kKeyNorm),
                                              std::pair(LayerRole::kQueryTokenNorm, LayerRole::kKeyTokenNorm)};

// Values indexed by role.
template <typename T>
struct ByRole {
  std::array<T, static_cast<size_t>(LayerRole::kCount)> values{};

  const T& operator[](LayerRole role) const { return values[static_cast<size_t>(role)]; }
  T& operator[](LayerRole role) { return values[static_cast<size_t>(role)]; }
};

struct LayerParameter {
  LayerRole role;
  std::string_view name;  // suffix after "model.layers.<i>."
  std::vector<int64_t> shape;
};

// Index of each role's weight in a layer's unit.
class LayerLayout {
 public:
  // Throws Failure unless kQuery, kKey and kValue are adjacent, their biases are adjacent (all or none present), and
  // kGate and kUp are adjacent if they are separate weights. The decoder computes each group in one matmul.
  explicit LayerLayout(std::span<const LayerParameter> parameters);

  bool has(LayerRole role) const { return (*this)[role] != kAbsent; }
  // Return the number of adjacent weights that form one matrix, starting at kQuery (count_of_qkv) or kGate
  // (count_of_gate_up).
  size_t count_of_qkv() const { return has(LayerRole::kKey) ? 3 : 1; }
  size_t count_of_gate_up() const { return has(LayerRole::kUp) ? 2 : 1; }
  size_t operator[](LayerRole role) const { return index_[role]; }

 private:
  static constexpr size_t kAbsent = static_cast<size_t>(-1);
  ByRole<size_t> index_;
};

}  // namespace mpzero::model
