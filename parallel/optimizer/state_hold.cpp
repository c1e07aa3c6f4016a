#include "parallel/optimizer/state_hold.hpp"

#include <algorithm>
#include <utility>

namespace mpzero::parallel {
StateHold::StateHold(std::shared_ptr<HoldRegistry> registry, OptimizerStates states)
    : registry_(std::move(registry)), states_(std::move(states)) {
  ++registry_->holds[states_.master.const_data_ptr()];
}

StateHold& StateHold::operator=(StateHold&& other) noexcept {
  release();
  registry_ = std::move(other.registry_);
  states_ = std::move(other.states_);
  return *this;
}

void StateHold::release() {
  if (!registry_) return;
  {
    const std::lock_guard lock(registry_->mutex);
    const auto hold = registry_->holds.find(states_.master.const_data_ptr());
    if (--hold->second == 0) registry_->holds.erase(hold);
  }
  registry_->changed.notify_all();
  registry_.reset();
  states_ = {};
}

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
