#include "parallel/zero/gather_schedule.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace mpzero::parallel {
namespace {

// Limits that disable prefetching and retention.
constexpr GatherLimits kLeast{
    .prefetch_bucket_size = 0, .param_persistence_threshold = 0, .max_live_parameters = 0, .max_reuse_distance = 0};

// Returns the larger count for each length.
std::map<int64_t, int64_t> merged(std::map<int64_t, int64_t> a, const std::map<int64_t, int64_t>& b) {
  for (const auto& [numel, count] : b) a[numel] = std::max(a[numel], count);
  return a;
}

}  // namespace

GatherSchedule::GatherSchedule(std::vector<int64_t> unit_numel, const GatherLimits& limits)
    : numel_(std::move(unit_numel)), limits_(limits), states_(numel_.size()) {}

void GatherSchedule::plan(std::vector<size_t> uses) {
  position_ = 0;
  if (uses == uses_) return;  // the usual case
  uses_ = std::move(uses);
  buffers_ = merged(std::move(buffers_), most_at_once(buffers_.empty() ? limits_ : kLeast));
}

void GatherSchedule::set_limits(const GatherLimits& limits) {
  buffers_ = buffers_with(limits);
  limits_ = limits;
}

std::map<int64_t, int64_t> GatherSchedule::buffers_with(const GatherLimits& limits) const {
  return merged(buffers_, most_at_once(limits));
}

GatherSchedule::Moves GatherSchedule::use(size_t unit) {
  if (position_ >= uses_.size() || uses_[position_] != unit) {
    throw_failure("unit {} is used out of order, at position {} of {} in the gather schedule", unit, position_,
                  uses_.size());
  }
  Moves moves;
  if (!states_[unit].gathered && !has_buffer(unit)) {
    const std::optional<size_t> other = unit_to_replace_by(unit);
    if (!other) {
      throw_failure("no free buffer for unit {} at position {} of {}: all {} buffers of {} elements are in use", unit,
                    position_, uses_.size(), buffers_.at(numel_[unit]), numel_[unit]);
    }
    give_back(*other);
    moves.release.push_back(*other);
  }
  moves.gather = gather_ahead();
  ++states_[unit].users;
  ++position_;
  return moves;
}

bool GatherSchedule::has_buffer(size_t unit) const {
  const int64_t numel = numel_[unit];
  const auto most = buffers_.find(numel);
  if (most == buffers_.end()) return true;
  const auto held = held_.find(numel);
  return held == held_.end() || held->second < most->second;
}

std::optional<size_t> GatherSchedule::unit_to_replace_by(size_t unit) const {
  std::optional<size_t> last;
  std::ptrdiff_t last_distance = -1;
  const auto next = uses_.begin() + static_cast<std::ptrdiff_t>(position_);
  for (size_t other = 0; other < states_.size(); ++other) {
    if (numel_[other] != numel_[unit] || !states_[other].gathered || states_[other].users > 0) continue;
    const std::ptrdiff_t distance = std::find(next, uses_.end(), other) - next;
    if (distance > last_distance) {
      last = other;
      last_distance = distance;
    }
  }
  return last;
}

void GatherSchedule::take(size_t unit) {
  states_[unit].gathered = true;
  live_ += numel_[unit];
  ++held_[numel_[unit]];
}

void GatherSchedule::give_back(size_t unit) {
  states_[unit].gathered = false;
  live_ -= numel_[unit];
  --held_[numel_[unit]];
}

std::vector<size_t> GatherSchedule::gather_ahead() {
  std::vector<size_t> start;
  int64_t ahead = 0;
  for (size_t i = position_; i < uses_.size(); ++i) {
    const size_t unit = uses_[i];
    if (states_[unit].outdated) break;
    const size_t distance = i - position_;
    if (distance > 1) ahead += numel_[unit];
    if (ahead > limits_.prefetch_bucket_size) break;
    if (states_[unit].gathered) continue;
    if (distance > 0 && live_ + numel_[unit] > limits_.max_live_parameters) break;
    if (!has_buffer(unit)) break;
    take(unit);
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
  // Keep the unit only if the next units still fit.
  if (live_ + next_to_gather() <= limits_.max_live_parameters && needed_soon(unit)) return false;
  give_back(unit);
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
  held_.clear();
  return gathered;
}

std::vector<size_t> GatherSchedule::publish(size_t unit) {
  states_[unit].outdated = false;
  return gather_ahead();
}

std::map<int64_t, int64_t> GatherSchedule::most_at_once(const GatherLimits& limits) const {
  GatherSchedule trial(numel_, limits);  // without buffer limits, so that buffers are never missing
  trial.uses_ = uses_;
  std::map<int64_t, int64_t> most;
  for (size_t i = 0; i < uses_.size(); ++i) {
    trial.use(uses_[i]);
    most = merged(std::move(most), trial.held_);
    if (i > 0) trial.release(uses_[i - 1]);
  }
  return most;
}

}  // namespace mpzero::parallel
