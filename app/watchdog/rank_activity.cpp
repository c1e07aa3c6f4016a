#include "app/watchdog/rank_activity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace mpzero {
namespace {

// Limit during training: the maximum of kMedianSteps median steps, kLongestSteps longest steps and kLeastLimit seconds,
// but at most --stuck_after.
constexpr double kMedianSteps = 10, kLongestSteps = 3, kLeastLimit = 300;
// Limit for all other phases, as a multiple of --stuck_after.
constexpr double kLongPhases = 3;
constexpr size_t kStepsKept = 101;
// A longer time between two turns means that the process was suspended. A busy host causes shorter delays.
constexpr std::chrono::seconds kGap(1);
// Progress within this time after a gap does not clear the gap: a launcher resumes a suspended rank in order to
// terminate it, and the rank may still complete a collective.
constexpr std::chrono::seconds kAfterGap(1);

double in_seconds(RankActivity::Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

const char* name_of(RunPhase phase) {
  constexpr std::array kNames = {"network", "setup", "first_step", "training", "validation", "checkpoint", "ending"};
  return kNames[std::min(static_cast<size_t>(phase), kNames.size() - 1)];
}

std::string describe(RunPhase phase, int64_t step) {
  constexpr std::array kPlaces = {"while connecting the hosts",          "during setup",
                                  "in step {}, the first after startup", "in step {}",
                                  "during validation after step {}",     "during checkpointing after step {}",
                                  "during shutdown after step {}"};
  return fmt::format(fmt::runtime(kPlaces[std::min(static_cast<size_t>(phase), kPlaces.size() - 1)]), step);
}

RankActivity::RankActivity(double stuck_after, Now now)
    : stuck_after_(stuck_after), now_(std::move(now)), entered_(now_()), last_turn_(entered_), last_motion_(entered_) {}

void RankActivity::enter(RunPhase phase, int64_t step) {
  const Clock::time_point now = now_();
  const std::lock_guard lock(mutex_);
  exclude_gap(now);
  if (phase_ == RunPhase::kTraining) {
    const double seconds = in_seconds(now - entered_);
    longest_step_ = std::max(longest_step_, seconds);
    if (steps_.size() < kStepsKept) steps_.push_back(seconds);
    steps_[next_step_++ % kStepsKept] = seconds;
  }
  phase_ = phase;
  step_ = step;
  entered_ = now;
  ++moves_;
}

void RankActivity::moved_on() {
  const std::lock_guard lock(mutex_);
  ++moves_;
}

void RankActivity::exclude_gap(Clock::time_point now) {
  const Clock::duration turn = now - std::exchange(last_turn_, now);
  if (turn <= kGap) return;
  for (Clock::time_point* since : {&entered_, &last_motion_}) *since = std::min(now, *since + (turn - kTurn));
  gap_ += in_seconds(turn - kTurn);
  gap_end_ = now;
}

double RankActivity::limit() const {
  if (stuck_after_ <= 0) return 0;
  if (phase_ != RunPhase::kTraining) return kLongPhases * stuck_after_;
  if (steps_.empty()) return stuck_after_;
  std::vector<double> sorted = steps_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return std::min(stuck_after_, std::max({kMedianSteps * *middle, kLongestSteps * longest_step_, kLeastLimit}));
}

RankActivity::Report RankActivity::take_turn() {
  const Clock::time_point now = now_();
  const std::lock_guard lock(mutex_);
  exclude_gap(now);
  const int64_t progress = recorder_.events() + moves_;
  if (std::exchange(seen_, progress) != progress) {
    last_motion_ = now;
    if (now - gap_end_ > kAfterGap) gap_ = 0;
  }
  return report_at(now);
}

RankActivity::Report RankActivity::report() const {
  const Clock::time_point now = now_();
  const std::lock_guard lock(mutex_);
  return report_at(now);
}

RankActivity::Report RankActivity::report_at(Clock::time_point now) const {
  return {.phase = phase_,
          .step = step_,
          .progress = seen_,
          .idle = in_seconds(now - last_motion_),
          .limit = limit(),
          .gap = gap_};
}

}  // namespace mpzero
