#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"

namespace mpzero::parallel {

// A model's units, split into parts that are either trainable or frozen. A unit with both kinds of parameters has
// several parts, each with its own flat buffer, shards and gathers. All elements of a part are summed, measured,
// updated and saved alike, so frozen parameters need no memory for gradients and optimizer states, and every rank has
// the same share of trainable ones. (If these were a prefix of one flat buffer, the first ranks would have all of
// them.) The cost is one more gather per additional part.
class UnitParts {
 public:
  // Freezes parameters whose names contain a match of a regular expression in `frozen` (std::regex, ECMAScript), and
  // those that are not trainable in `units`. `coded`: frozen matrices of a unit with trainable parameters become a part
  // with UnitSpec::coded.
  UnitParts(std::vector<UnitSpec> units, const std::vector<std::string>& frozen, bool coded = false);

  // The units, with ParameterSpec::trainable set accordingly.
  const std::vector<UnitSpec>& units() const { return units_; }
  // Part u is unit u, without its frozen parameters if it has trainable ones. Those are appended as "UNIT.frozen" and
  // "UNIT.coded".
  const std::vector<UnitSpec>& parts() const { return parts_; }
  // The parts of a unit: itself, and the appended ones.
  const std::vector<size_t>& of(size_t unit) const { return parts_of_[unit]; }
  // The positions of a part's parameters in the unit.
  const std::vector<size_t>& positions(size_t part) const { return positions_[part]; }
  // The order in which parts are gathered, if units are used in this order.
  std::vector<size_t> uses(const std::vector<size_t>& units) const;

 private:
  std::vector<UnitSpec> units_;
  std::vector<UnitSpec> parts_;
  std::vector<std::vector<size_t>> parts_of_, positions_;
};

}  // namespace mpzero::parallel
