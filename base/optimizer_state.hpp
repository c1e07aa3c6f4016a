#pragma once

#include <array>
#include <span>

#include "base/parameter_spec.hpp"

namespace mpzero {

// The three fp32 values that AdamW stores for each parameter.
enum class StateKind { kMaster, kExpAvg, kExpAvgSq };

inline constexpr std::array kStateKinds = {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq};

// Those of a unit whose parameters are all trainable or all frozen: of frozen ones the master weights, which have the
// values of the parameters.
inline std::span<const StateKind> states_of(const UnitSpec& unit) {
  return std::span(kStateKinds).first(unit.trainable() ? kStateKinds.size() : 1);
}

}  // namespace mpzero
