#pragma once

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/torch_save/pickle_reader.hpp"

namespace mpzero::io {

// Visits all values that a checkpoint reader would visit.
inline void walk(const pickle::Value& root) {
  (void)root.to_json();
  if (root.kind() != pickle::Kind::kDict) return;
  for (const auto& [name, value] : root.entries()) {
    try {
      (void)value.tensor();
    } catch (const Error&) {
    }
  }
}

}  // namespace mpzero::io
