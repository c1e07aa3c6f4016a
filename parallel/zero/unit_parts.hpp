#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"

namespace mpzero::parallel {

// A model's units as the engine keeps them: in parts that are trainable or frozen as a whole. A unit that has both
// kinds of parameters is several parts, each with its own flat buffer, shards and gathers. Every element of a part is
// then summed, measured, updated and saved alike, so that gradients and optimizer states of frozen parameters need no
// memory and every rank keeps the same share of the others. A prefix of one flat buffer would give all trainable
// elements to the first ranks. The price is a gather more for each further part.
class UnitParts {
 public:
  // Parameters whose names a regular expression of `frozen` matches somewhere (std::regex, ECMAScript) are frozen, as
  // are those that are not trainable in `units`. `coded`: frozen matrices of a unit with trainable parameters are a
  // part that is UnitSpec::coded.
  UnitParts(std::vector<UnitSpec> units, const std::vector<std::string>& frozen, bool coded = false);

  // With ParameterSpec::trainable as it is.
  const std::vector<UnitSpec>& units() const { return units_; }
  // Part u is unit u, without its frozen parameters if it has trainable ones. Those follow as "UNIT.frozen" and
  // "UNIT.coded".
  const std::vector<UnitSpec>& parts() const { return parts_; }
  // The parts of a unit: itself, and those that follow.
  const std::vector<size_t>& of(size_t unit) const { return parts_of_[unit]; }
  // Of each parameter of a part, its position in the unit.
  const std::vector<size_t>& positions(size_t part) const { return positions_[part]; }
  // The order in which parts are gathered, if units are used in this order.
  std::vector<size_t> uses(const std::vector<size_t>& units) const;

 private:
  std::vector<UnitSpec> units_;
  std::vector<UnitSpec> parts_;
  std::vector<std::vector<size_t>> parts_of_, positions_;
};

}  // namespace mpzero::parallel
