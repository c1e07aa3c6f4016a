#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"

namespace mpzero::parallel {

// A model's units as the engine keeps them: in parts that are trainable or frozen as a whole. A unit that has both
// kinds of parameters is two parts, each with its own flat buffer, shards and gathers. Every element of a part is then
// summed, measured, updated and saved alike, so that gradients and optimizer states of frozen parameters need no memory
// and every rank keeps the same share of the others. A prefix of one flat buffer would give all trainable elements to
// the first ranks. The price is one more gather for each such unit.
class UnitParts {
 public:
  // Parameters whose names a regular expression of `frozen` matches somewhere (std::regex, ECMAScript) are frozen, as
  // are those that are not trainable in `units`.
  UnitParts(std::vector<UnitSpec> units, const std::vector<std::string>& frozen);

  // With ParameterSpec::trainable as it is.
  const std::vector<UnitSpec>& units() const { return units_; }
  // Part u is unit u, without its frozen parameters if it has trainable ones. Those follow as "UNIT.frozen".
  const std::vector<UnitSpec>& parts() const { return parts_; }
  // The part of the unit's frozen parameters, if that is not part `unit`.
  std::optional<size_t> frozen_part(size_t unit) const { return frozen_part_[unit]; }
  // The order in which parts are gathered, if units are used in this order.
  std::vector<size_t> uses(const std::vector<size_t>& units) const;

 private:
  std::vector<UnitSpec> units_;
  std::vector<UnitSpec> parts_;
  std::vector<std::optional<size_t>> frozen_part_;
};

}  // namespace mpzero::parallel
