#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace mpzero::model {

// Which activations a decoder layer keeps from its forward for its backward. The gradients have the same bits at every
// level, as long as the bits of matrix products and attention are reproducible.
enum class Recompute : uint8_t {
  kNone,       // everything
  kSelective,  // the results of matrix products and attention; backward recomputes the rest
  kFull,       // its input only; backward runs the whole forward again
};

// "none", "selective", "full".
constexpr std::string_view name(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "none";
    case Recompute::kSelective:
      return "selective";
    case Recompute::kFull:
      break;
  }
  return "full";
}

// The level of a name; std::nullopt for other names.
constexpr std::optional<Recompute> recompute_of(std::string_view text) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    if (name(recompute) == text) return recompute;
  }
  return std::nullopt;
}

}  // namespace mpzero::model
