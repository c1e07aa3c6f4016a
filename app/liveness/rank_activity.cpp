#include "app/liveness/rank_activity.hpp"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

namespace mpzero {
namespace {

// Set-up, the first step and checkpoints may take this many times --stuck_after.
constexpr double kLongPhases = 3;
constexpr size_t kCollectivesSent = 6;

// A connection drops a message that it has no room for.
std::string shortened(std::string error) {
  constexpr size_t kLongest = 64 * 1024;
  if (error.size() <= kLongest) return error;
  const size_t more = error.size() - kLongest;
  error.resize(kLongest);
  return fmt::format("{} ... ({} more bytes)", error, more);
}

bool takes_long(RunPhase phase) {
  return phase == RunPhase::kSetUp || phase == RunPhase::kFirstStep || phase == RunPhase::kCheckpoint;
}

}  // namespace

RankActivity::RankActivity(double stuck_after) : stuck_after_(stuck_after) {}

void RankActivity::enter(RunPhase phase, int64_t step) {
  step_ = step;
  enter(phase);
}

void RankActivity::enter(RunPhase phase) {
  phase_ = phase;
  moved_on();
}

void RankActivity::watch(std::vector<parallel::Communicator*> communicators) {
  const std::lock_guard lock(mutex_);
  communicators_ = std::move(communicators);
}

void RankActivity::failed(const std::string& error, const std::vector<int>& culprits) {
  const std::lock_guard lock(mutex_);
  error_ = error;
  culprits_ = culprits;
}

void RankActivity::complain(const std::string& message) {
  const std::lock_guard lock(mutex_);
  complaint_ = message;
}

bool RankActivity::has_failed() {
  const std::lock_guard lock(mutex_);
  return error_.has_value();
}

RankReport RankActivity::report(LivenessTime now) {
  // This also polls the device's progress.
  std::optional<std::string> met = error();
  if (met) met = shortened(*std::move(met));
  const int64_t motion = recorder_.events() + ticks_;
  if (motion != seen_motion_) last_motion_ = now;
  seen_motion_ = motion;
  const RunPhase phase = phase_;
  const std::lock_guard lock(mutex_);
  return {.status = {.step = step_,
                     .phase = phase,
                     .idle = in_seconds(now - last_motion_),
                     .allowed = std::min(stuck_after_ * (takes_long(phase) ? kLongPhases : 1),
                                         std::numeric_limits<double>::max()),
                     .channels = recorder_.records(kCollectivesSent),
                     .complaint = complaint_},
          .error = std::move(met),
          .culprits = culprits_};
}

std::optional<std::string> RankActivity::error() {
  const std::lock_guard lock(mutex_);
  if (error_) return error_;
  try {
    recorder_.poll();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  for (parallel::Communicator* communicator : communicators_) {
    if (std::optional<std::string> error = communicator->asynchronous_error()) return error;
  }
  return std::nullopt;
}

void RankActivity::abort_communicators() {
  const std::lock_guard lock(mutex_);
  for (parallel::Communicator* communicator : communicators_) communicator->abort();
}

}  // namespace mpzero
