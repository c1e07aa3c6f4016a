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

// A layer's matmuls with weights, in forward order.
enum class LayerProduct : uint8_t { kQkv, kOutput, kGateUp, kDown };
inline constexpr std::array kLayerProducts{LayerProduct::kQkv, LayerProduct::kOutput, LayerProduct::kGateUp,
                                           LayerProduct::kDown};

constexpr std::string_view name(LayerProduct product) {
  constexpr std::array<std::string_view, kLayerProducts.size()> kNames{"qkv", "output", "gate_up", "down"};
  return kNames[static_cast<size_t>(product)];
}

// For each LayerProduct, true if the operands of the matmul are FP8.
using Fp8Products = std::array<bool, kLayerProducts.size()>;

// Returns the roles of the weights that the matmul reads as one matrix.
std::vector<LayerRole> roles_of(LayerProduct product, const LayerLayout& layout);

// Returns, for each layer, which matmuls run in FP8. `layers`: units of the decoder layers. Throws UserError with
// `source`, the origin of the options, if a name in filter_fqns matches no matmul.
std::vector<Fp8Products> fp8_products(const Fp8Options& options, const std::vector<UnitSpec>& layers,
                                      const LayerLayout& layout, const std::string& source);

}  // namespace mpzero::model
