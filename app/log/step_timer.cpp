#include "app/log/step_timer.hpp"

#include <algorithm>

namespace mpzero {
namespace {

using parallel::Stall;
using parallel::Timeline;

void append(std::vector<Stall>& stalls, const std::vector<Stall>& more) {
  stalls.insert(stalls.end(), more.begin(), more.end());
}

void drop_before(std::vector<Stall>& stalls, Timeline::Mark mark) {
  std::erase_if(stalls, [&](const Stall& stall) { return stall.begin < mark; });
}

double& part_of(StepSplit& split, Phase phase) {
  switch (phase) {
    case Phase::kData:
      return split.data;
    case Phase::kForward:
      return split.forward;
    case Phase::kBackward:
      return split.backward;
    default:
      return split.optimizer;
  }
}

}  // namespace

StepSplit& StepSplit::operator+=(const StepSplit& other) {
  data += other.data;
  forward += other.forward;
  backward += other.backward;
  optimizer += other.optimizer;
  exposed_parameters += other.exposed_parameters;
  exposed_gradients += other.exposed_gradients;
  return *this;
}

StepSplit StepSplit::divided_by(double steps) const {
  return {.data = data / steps,
          .forward = forward / steps,
          .backward = backward / steps,
          .optimizer = optimizer / steps,
          .exposed_parameters = exposed_parameters / steps,
          .exposed_gradients = exposed_gradients / steps};
}

void StepTimer::enter(Phase phase) {
  const Timeline::Mark now = timeline_.mark();
  if (timeline_.running()) close_segment(now);
  timeline_.start();
  segments_.push_back({phase, now, now});
}

void StepTimer::close_segment(Timeline::Mark end) { segments_.back().end = end; }

void StepTimer::held_up_by_updates(const std::vector<Stall>& stalls) { append(update_stalls_, stalls); }

void StepTimer::caught_up() { passed_ = segments_.back().begin; }

StepSplit StepTimer::finish_step() {
  const Timeline::Mark now = timeline_.mark();
  close_segment(now);
  timeline_.stop();
  if (timeline_.is_host()) passed_ = now;
  append(parameter_stalls_, parameters_.take_stalls());
  append(gradient_stalls_, gradients_.take_stalls());

  StepSplit split;
  size_t done = 0;
  for (; done < segments_.size() && segments_[done].end <= passed_; ++done) {
    const Segment& segment = segments_[done];
    const double for_parameters = stalled(parameter_stalls_, segment);
    const double for_gradients = stalled(gradient_stalls_, segment);
    const double for_updates = stalled(update_stalls_, segment);
    split.exposed_parameters += for_parameters;
    split.exposed_gradients += for_gradients;
    part_of(split, segment.phase) += std::max(
        0.0, timeline_.seconds_between(segment.begin, segment.end) - for_parameters - for_gradients - for_updates);
    split.optimizer += for_updates;
  }
  segments_.erase(segments_.begin(), segments_.begin() + static_cast<std::ptrdiff_t>(done));
  const Timeline::Mark kept = segments_.empty() ? now : segments_.front().begin;
  drop_before(parameter_stalls_, kept);
  drop_before(gradient_stalls_, kept);
  drop_before(update_stalls_, kept);
  timeline_.forget_before(kept);
  return split;
}

double StepTimer::stalled(const std::vector<Stall>& stalls, const Segment& segment) const {
  auto stall = std::lower_bound(stalls.begin(), stalls.end(), segment.begin,
                                [](const Stall& s, Timeline::Mark mark) { return s.begin < mark; });
  double seconds = 0;
  for (; stall != stalls.end() && stall->begin < segment.end; ++stall) {
    seconds += timeline_.seconds_between(stall->begin, stall->end);
  }
  return seconds;
}

}  // namespace mpzero
