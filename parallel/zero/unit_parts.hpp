#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"

namespace mpzero::parallel {

// Units of a model, split into parts that are either trainable or frozen. A unit with both kinds of parameters has
// several parts, each with its own flat buffer, shards and gathers. All elements of a part are reduced, updated and
// saved in the same way. Frozen parameters therefore need no memory for gradients and optimizer states, and trainable
// parameters are divided evenly among the ranks. (In a single flat buffer, the first ranks could have all trainable
// parameters.) Each additional part requires one more gather.
class UnitParts {
 public:
  // Freezes parameters whose names contain a match for a regular expression in `frozen` (std::regex, ECMAScript), and
  // parameters that are not trainable in `units`. `coded`: frozen matrices of a unit with trainable parameters become a
  // part with UnitSpec::coded. Throws std::regex_error.
  UnitParts(std::vector<UnitSpec> units, const std::vector<std::string>& frozen, bool coded = false);

  // Returns the units, with ParameterSpec::trainable set to false for frozen parameters.
  const std::vector<UnitSpec>& units() const { return units_; }
  // Returns the parts. Part u contains the parameters of unit u. In a unit that also has trainable parameters, the
  // frozen parameters instead form the parts "UNIT.frozen" and "UNIT.coded", which follow all units.
  const std::vector<UnitSpec>& parts() const { return parts_; }
  // Returns the indices of a unit's parts: `unit` itself and the appended parts.
  const std::vector<size_t>& of(size_t unit) const { return parts_of_[unit]; }
  // Returns, for each parameter of a part, its index in the unit.
  const std::vector<size_t>& positions(size_t part) const { return positions_[part]; }
  // Returns the order in which parts are gathered if the units are used in the order of `units`.
  std::vector<size_t> uses(const std::vector<size_t>& units) const;

 private:
  std::vector<UnitSpec> units_;
  std::vector<UnitSpec> parts_;
  std::vector<std::vector<size_t>> parts_of_, positions_;
};

}  // namespace mpzero::parallel
