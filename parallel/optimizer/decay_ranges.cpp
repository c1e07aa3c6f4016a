#include "parallel/optimizer/decay_ranges.hpp"

#include "base/parameter_spec.hpp"

namespace mpzero::parallel {

bool matches_any(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return name.find(pattern) != std::string::npos; });
}

DecayRanges::DecayRanges(int64_t count) { add(count, /*decays=*/true); }

DecayRanges::DecayRanges(const UnitSpec& unit, int64_t begin, int64_t count, const std::vector<std::string>& no_decay) {
  visit_parameters(unit, begin, begin + count, [&](const ParameterRange& range) {
    add(range.offset + range.count, !matches_any(range.parameter.name, no_decay));
  });
  add(count, /*decays=*/true);
}

// Appends a run from the end of the last run to `end`.
void DecayRanges::add(int64_t end, bool decays) {
  const int64_t begin = runs_.empty() ? 0 : runs_.back().end;
  if (end <= begin) return;
  if (!runs_.empty() && runs_.back().decays == decays) {
    runs_.back().end = end;
  } else {
    runs_.push_back({.begin = begin, .end = end, .decays = decays});
  }
}

}  // namespace mpzero::parallel
