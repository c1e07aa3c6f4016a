#include "parallel/optimizer/spare_states.hpp"

#include <algorithm>
#include <utility>

namespace mpzero::parallel {

void SpareStates::add(OptimizerStates states) {
  const int64_t length = states.master.numel();
  by_length_[length].push_back(std::move(states));
}

bool SpareStates::has(int64_t length, const HoldRegistry& held) const {
  const auto spares = by_length_.find(length);
  return spares != by_length_.end() &&
         !std::all_of(spares->second.begin(), spares->second.end(),
                      [&](const OptimizerStates& states) { return held.is_held(states); });
}

std::optional<OptimizerStates> SpareStates::take(int64_t length, const HoldRegistry& held) {
  std::vector<OptimizerStates>& spares = by_length_[length];
  const auto free = std::find_if_not(spares.rbegin(), spares.rend(),
                                     [&](const OptimizerStates& states) { return held.is_held(states); });
  if (free == spares.rend()) return std::nullopt;
  std::swap(*free, spares.back());
  std::optional<OptimizerStates> spare(std::move(spares.back()));
  spares.pop_back();
  return spare;
}

int64_t SpareStates::shrink(int64_t length, int64_t most) {
  std::vector<OptimizerStates>& spares = by_length_[length];
  spares.resize(std::min(spares.size(), static_cast<size_t>(most)));
  return static_cast<int64_t>(spares.size());
}

}  // namespace mpzero::parallel
