#include "parallel/spare_states.hpp"

#include <algorithm>
#include <utility>

namespace mpzero::parallel {

bool is_held(const OptimizerStates& states) {
  return states.master.storage().use_count() > 1 || states.exp_avg.storage().use_count() > 1 ||
         states.exp_avg_sq.storage().use_count() > 1;
}

void SpareStates::add(OptimizerStates states) {
  const int64_t length = states.master.numel();
  by_length_[length].push_back(std::move(states));
}

std::optional<OptimizerStates> SpareStates::take(int64_t length) {
  std::vector<OptimizerStates>& spares = by_length_[length];
  const auto last = std::find_if_not(spares.rbegin(), spares.rend(), is_held);
  if (last == spares.rend()) return std::nullopt;
  std::swap(*last, spares.back());
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
