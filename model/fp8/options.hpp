#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/fp8/recipe.hpp"

namespace mpzero::model {

// Which layers keep the casts of their weights from the first use until the weights change; the others cast them at
// each use.
enum class KeptCasts : uint8_t {
  kNone,
  kAll,
  kAsToldLater,  // as many as Decoder::keep_casts says, none before
};

// Layers whose products read FP8 in all three passes: the output, the gradient of the input and that of the weight.
struct Fp8Options {
  fp8::Recipe recipe;
  // Products that stay in bf16: "first" and "last" layer, or one or more neighbouring components of a parameter's name,
  // as in "down_proj", "self_attn" or "layers.3.mlp". A product of several parameters stays if one of them is named.
  std::vector<std::string> filter_fqns;
  KeptCasts kept_casts = KeptCasts::kAll;

  bool operator==(const Fp8Options&) const = default;
};

}  // namespace mpzero::model
