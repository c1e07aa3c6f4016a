#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/fp8/recipe.hpp"

namespace mpzero::model {

// Selects the layers that cache the casts of their weights until the weights change. All other layers cast their
// weights at each use.
enum class KeptCasts : uint8_t {
  kNone,
  kAll,
  kAsToldLater,  // number of layers set by Decoder::keep_casts, initially 0
};

// Options of FP8 layers, whose matmuls read FP8 operands to compute the output, the input gradient and the weight
// gradient.
struct Fp8Options {
  fp8::Recipe recipe;
  // Matmuls that stay in bf16: "first" or "last" (layer), or adjacent components of a parameter name, e.g. "down_proj",
  // "self_attn" or "layers.3.mlp". A fused matmul stays in bf16 if any of its parameters' names matches.
  std::vector<std::string> filter_fqns;
  KeptCasts kept_casts = KeptCasts::kAll;

  bool operator==(const Fp8Options&) const = default;
};

}  // namespace mpzero::model
