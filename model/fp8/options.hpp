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
  kAsToldLater,  // the number passed to Decoder::keep_casts; before that, none
};

// FP8 layers: products read FP8 to compute the output, the input's gradient and the weight's gradient.
struct Fp8Options {
  fp8::Recipe recipe;
  // Products that stay in bf16: "first" and "last" layer, or one or more neighbouring components of a parameter's name,
  // as in "down_proj", "self_attn" or "layers.3.mlp". A product of several parameters stays in bf16 if one of them
  // matches.
  std::vector<std::string> filter_fqns;
  KeptCasts kept_casts = KeptCasts::kAll;

  bool operator==(const Fp8Options&) const = default;
};

}  // namespace mpzero::model
