#include "parallel/optimizer/state_hold.hpp"

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

}  // namespace mpzero::parallel
