#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/parameter_spec.hpp"
#include "model/architecture/layer_layout.hpp"
#include "model/fp8/options.hpp"

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

// The matrices that the product reads as one.
std::vector<LayerRole> roles_of(LayerProduct product, const LayerLayout& layout);

// What reads FP8 in each layer. `layers`: the units of the decoder layers. Throws UserError for a name of filter_fqns
// that no product has. `source`: where the options are from.
std::vector<Fp8Products> fp8_products(const Fp8Options& options, const std::vector<UnitSpec>& layers,
                                      const LayerLayout& layout, const std::string& source);

}  // namespace mpzero::model
