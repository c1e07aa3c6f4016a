#include "model/fp8/layer_product.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace mpzero::model {
namespace {

// Returns true if `pattern` consists of one or more adjacent components of `name`.
bool names(const std::string& pattern, const std::string& name) {
  return fmt::format(".{}.", name).find(fmt::format(".{}.", pattern)) != std::string::npos;
}

}  // namespace

std::vector<LayerRole> roles_of(LayerProduct product, const LayerLayout& layout) {
  using enum LayerRole;
  std::vector<LayerRole> roles{kDown};
  if (product == LayerProduct::kQkv) roles = {kQuery, kKey, kValue};
  if (product == LayerProduct::kOutput) roles = {kOutput};
  if (product == LayerProduct::kGateUp) roles = {kGate, kUp};
  std::erase_if(roles, [&](LayerRole role) { return !layout.has(role); });
  return roles;
}

std::vector<Fp8Products> fp8_products(const Fp8Options& options, const std::vector<UnitSpec>& layers,
                                      const LayerLayout& layout, const std::string& source) {
  std::vector<Fp8Products> products(layers.size());
  for (Fp8Products& all : products) all.fill(true);
  for (const std::string& pattern : options.filter_fqns) {
    bool found = false;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const bool by_place = (pattern == "first" && layer == 0) || (pattern == "last" && layer + 1 == layers.size());
      for (const LayerProduct product : kLayerProducts) {
        bool named = by_place;
        for (const LayerRole role : roles_of(product, layout)) {
          named = named || names(pattern, layers[layer].parameters[layout[role]].name);
        }
        if (!named) continue;
        products[layer][static_cast<size_t>(product)] = false;
        found = true;
      }
    }
    if (!found) {
      throw_user_error(
          "{}: fp8.filter_fqns contains \"{}\", which matches no matmul; use first, last or parts of a name, "
          "e.g. {}.",
          source, pattern, layers.front().parameters[layout[LayerRole::kDown]].name);
    }
  }
  return products;
}

}  // namespace mpzero::model
