#pragma once

#include <algorithm>
#include <cstdint>

#include "base/parameter_spec.hpp"

namespace mpzero {

// What of a parameter lies in a range of its unit's flat buffer, in elements.
struct ParameterRange {
  const ParameterSpec& parameter;
  int64_t begin;   // of the parameter
  int64_t count;   // at least 1
  int64_t offset;  // of `begin` from the range's beginning
};

// Calls `visit` with a ParameterRange for each parameter of which elements lie in [begin, end) of the unit's flat
// buffer, in the unit's order. What of the range lies beyond the unit is passed over.
template <class Visit>
void visit_parameters(const UnitSpec& unit, int64_t begin, int64_t end, Visit visit) {
  int64_t first = 0;
  for (const ParameterSpec& parameter : unit.parameters) {
    const int64_t last = first + parameter.numel();
    const int64_t from = std::max(begin, first);
    const int64_t to = std::min(end, last);
    if (from < to) {
      visit(ParameterRange{.parameter = parameter, .begin = from - first, .count = to - from, .offset = from - begin});
    }
    first = last;
  }
}

}  // namespace mpzero
