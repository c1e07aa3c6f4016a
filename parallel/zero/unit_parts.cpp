#include "parallel/zero/unit_parts.hpp"

#include <algorithm>
#include <numeric>
#include <regex>
#include <utility>

namespace mpzero::parallel {

UnitParts::UnitParts(std::vector<UnitSpec> units, const std::vector<std::string>& frozen, bool coded)
    : units_(std::move(units)), parts_of_(units_.size()) {
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
    parts_of_[u] = {u};
    positions_.emplace_back(units_[u].parameters.size());
    std::iota(positions_[u].begin(), positions_[u].end(), 0);
  }
  for (size_t u = 0; u < units_.size(); ++u) {
    if (!units_[u].trainable()) continue;
    UnitSpec plain{.name = units_[u].name + ".frozen", .parameters = {}};
    UnitSpec in_codes{.name = units_[u].name + ".coded", .parameters = {}, .coded = true};
    std::vector<size_t> of_trained, of_plain, of_coded;
    for (size_t p = 0; p < units_[u].parameters.size(); ++p) {
      const ParameterSpec& parameter = units_[u].parameters[p];
      if (parameter.trainable) {
        of_trained.push_back(p);
        continue;
      }
      const bool as_codes = coded && parameter.shape.size() == 2;
      (as_codes ? in_codes : plain).parameters.push_back(parameter);
      (as_codes ? of_coded : of_plain).push_back(p);
    }
    std::erase_if(parts_[u].parameters, [](const ParameterSpec& parameter) { return !parameter.trainable; });
    positions_[u] = std::move(of_trained);
    for (auto [part, positions] : {std::pair(&plain, &of_plain), std::pair(&in_codes, &of_coded)}) {
      if (part->parameters.empty()) continue;
      parts_of_[u].push_back(parts_.size());
      parts_.push_back(std::move(*part));
      positions_.push_back(std::move(*positions));
    }
  }
}

std::vector<size_t> UnitParts::uses(const std::vector<size_t>& units) const {
  std::vector<size_t> parts;
  for (const size_t unit : units) parts.insert(parts.end(), parts_of_[unit].begin(), parts_of_[unit].end());
  return parts;
}

}  // namespace mpzero::parallel
