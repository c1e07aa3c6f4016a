#pragma once

#include <string>
#include <vector>

#include "model/fp8/recipe.hpp"

namespace mpzero::model {

// Layers whose products read FP8 in all three passes: the output, the gradient of the input and that of the weight.
struct Fp8Options {
  fp8::Recipe recipe;
  // Products that stay in bf16: "first" and "last" layer, or one or more neighbouring components of a parameter's name,
  // as in "down_proj", "self_attn" or "layers.3.mlp". A product of several parameters stays if one of them is named.
  std::vector<std::string> filter_fqns;
  // Keeps the weights' casts from their first use until the weights change. Else they are cast at each use.
  bool cache_weights = true;

  bool operator==(const Fp8Options&) const = default;
};

}  // namespace mpzero::model
