#include "parallel/zero/unit_parts.hpp"

#include <algorithm>
#include <regex>
#include <utility>

namespace mpzero::parallel {

UnitParts::UnitParts(std::vector<UnitSpec> units, const std::vector<std::string>& frozen)
    : units_(std::move(units)), frozen_part_(units_.size()) {
  for (const std::string& pattern : frozen) {
    const std::regex regex(pattern);
    for (UnitSpec& unit : units_) {
      for (ParameterSpec& parameter : unit.parameters) {
        if (std::regex_search(parameter.name, regex)) parameter.trainable = false;
      }
    }
  }
  parts_ = units_;
  for (size_t u = 0; u < units_.size(); ++u) {
    const auto is_frozen = [](const ParameterSpec& parameter) { return !parameter.trainable; };
    const std::vector<ParameterSpec>& all = units_[u].parameters;
    if (!units_[u].trainable() || std::ranges::none_of(all, is_frozen)) continue;
    UnitSpec rest{.name = units_[u].name + ".frozen", .parameters = {}};
    std::ranges::copy_if(all, std::back_inserter(rest.parameters), is_frozen);
    std::erase_if(parts_[u].parameters, is_frozen);
    frozen_part_[u] = parts_.size();
    parts_.push_back(std::move(rest));
  }
}

std::vector<size_t> UnitParts::uses(const std::vector<size_t>& units) const {
  std::vector<size_t> parts;
  for (const size_t unit : units) {
    parts.push_back(unit);
    if (frozen_part_[unit]) parts.push_back(*frozen_part_[unit]);
  }
  return parts;
}

}  // namespace mpzero::parallel
