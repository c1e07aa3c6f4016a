#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace mpzero::model {

// What a decoder layer keeps from its forward for its backward. The gradients have the same bits whichever is chosen,
// as long as matrix products and attention repeat theirs.
enum class Recompute : uint8_t {
  kNone,       // everything
  kSelective,  // what matrix products and attention made; the rest is made again on the way through backward
  kFull,       // its input only; the whole forward runs again
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

// The level of a name; nothing for other words.
constexpr std::optional<Recompute> recompute_of(std::string_view text) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    if (name(recompute) == text) return recompute;
  }
  return std::nullopt;
}

}  // namespace mpzero::model
