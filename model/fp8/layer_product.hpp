#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace mpzero::model {

// The products of a layer with its weights, in the order of the forward pass.
enum class LayerProduct : uint8_t { kQkv, kOutput, kGateUp, kDown };
inline constexpr std::array kLayerProducts{LayerProduct::kQkv, LayerProduct::kOutput, LayerProduct::kGateUp,
                                           LayerProduct::kDown};

constexpr std::string_view name(LayerProduct product) {
  constexpr std::array<std::string_view, kLayerProducts.size()> kNames{"qkv", "output", "gate_up", "down"};
  return kNames[static_cast<size_t>(product)];
}

// By LayerProduct: whether it reads FP8.
using Fp8Products = std::array<bool, kLayerProducts.size()>;

}  // namespace mpzero::model
