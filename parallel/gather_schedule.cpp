#include "parallel/gather_schedule.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace mpzero::parallel {

GatherSchedule::GatherSchedule(std::vector<int64_t> unit_numel, const GatherLimits& limits)
    : numel_(std::move(unit_numel)), limits_(limits), states_(numel_.size()) {}

void GatherSchedule::plan(std::vector<size_t> uses) {
  uses_ = std::move(uses);
  position_ = 0;
}

std::vector<size_t> GatherSchedule::use(size_t unit) {
  if (position_ >= uses_.size() || uses_[position_] != unit) {
    throw_failure("unit {} is used out of the planned order, at place {} of {}", unit, position_, uses_.size());
  }
  std::vector<size_t> start = gather_ahead();
  ++states_[unit].users;
  ++position_;
  return start;
}

std::vector<size_t> GatherSchedule::gather_ahead() {
  std::vector<size_t> start;
  int64_t ahead = 0;
  for (size_t i = position_; i < uses_.size(); ++i) {
    const size_t unit = uses_[i];
    State& state = states_[unit];
    if (state.outdated) break;
    const size_t distance = i - position_;
    if (distance > 1) ahead += numel_[unit];
    if (ahead > limits_.prefetch_bucket_size) break;
    if (state.gathered) continue;
    if (distance > 0 && live_ + numel_[unit] > limits_.max_live_parameters) break;
    state.gathered = true;
    live_ += numel_[unit];
    start.push_back(unit);
  }
  return start;
}

bool GatherSchedule::needed_soon(size_t unit) const {
  int64_t distance = 0;
  for (size_t i = position_; i < uses_.size() && distance <= limits_.max_reuse_distance; ++i) {
    if (uses_[i] == unit) return true;
    distance += numel_[uses_[i]];
  }
  return false;
}

int64_t GatherSchedule::next_to_gather() const {
  int64_t numel = 0;
  for (size_t i = position_; i < std::min(position_ + 2, uses_.size()); ++i) {
    if (!states_[uses_[i]].gathered) numel += numel_[uses_[i]];
  }
  return numel;
}

bool GatherSchedule::release(size_t unit) {
  State& state = states_[unit];
  if (--state.users > 0 || numel_[unit] <= limits_.param_persistence_threshold) return false;
  // Keeping it must leave room for what comes next.
  if (live_ + next_to_gather() <= limits_.max_live_parameters && needed_soon(unit)) return false;
  state.gathered = false;
  live_ -= numel_[unit];
  return true;
}

std::vector<size_t> GatherSchedule::invalidate() {
  std::vector<size_t> gathered;
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    if (states_[unit].gathered) gathered.push_back(unit);
    states_[unit].gathered = false;
    states_[unit].outdated = true;
  }
  live_ = 0;
  return gathered;
}

std::vector<size_t> GatherSchedule::publish(size_t unit) {
  states_[unit].outdated = false;
  return gather_ahead();
}

std::map<int64_t, int64_t> GatherSchedule::most_at_once() const {
  GatherSchedule trial(numel_, limits_);
  trial.plan(uses_);
  std::map<int64_t, int64_t> now, most;
  const auto release = [&](size_t unit) {
    if (trial.release(unit)) --now[numel_[unit]];
  };
  for (size_t i = 0; i < uses_.size(); ++i) {
    for (const size_t unit : trial.use(uses_[i])) {
      const int64_t count = ++now[numel_[unit]];
      most[numel_[unit]] = std::max(most[numel_[unit]], count);
    }
    // Uses may overlap with the one before.
    if (i > 0) release(uses_[i - 1]);
  }
  return most;
}

}  // namespace mpzero::parallel
