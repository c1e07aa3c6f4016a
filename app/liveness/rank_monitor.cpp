#include "app/liveness/rank_monitor.hpp"

#include <algorithm>

namespace mpzero {
namespace {

using State = RankRecord::State;

// When a rank is gone, its launcher soon ends the others: mpirun one second after the first.
constexpr double kSettleLost = 0.4;
// All ranks stop making progress, or notice the silence of another rank, within two heartbeats.
constexpr double kSettleStuck = 2.5;
// Time for MPI to end the ranks once one of them has reported its error, in seconds.
constexpr double kErrorLimit = 60;

}  // namespace

RankMonitor::RankMonitor(const std::vector<RankIdentity>& ranks, double silent_after, Time now)
    : last_message_(ranks.size(), now), silent_after_(silent_after) {
  records_.resize(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) records_[i].identity = ranks[i];
}

void RankMonitor::heard(int rank, const RankStatus& status, Time now) {
  record(rank).status = status;
  last_message_.at(static_cast<size_t>(rank)) = now;
  if (record(rank).state == State::kSilent) record(rank).state = State::kAnswers;
}

void RankMonitor::failed(int rank, const std::string& error, Time now, const std::vector<int>& culprits) {
  if (record(rank).state != State::kAnswers) return;
  record(rank).state = State::kFailed;
  record(rank).error = error;
  // The values come from another process: keep only ranks of this run.
  for (const int culprit : culprits) {
    if (culprit >= 0 && static_cast<size_t>(culprit) < records_.size()) record(rank).culprits.push_back(culprit);
  }
  last_message_.at(static_cast<size_t>(rank)) = now;
}

void RankMonitor::lost(int rank) {
  if (record(rank).state == State::kLeft || record(rank).state == State::kFailed) return;
  record(rank).state = State::kLost;
}

void RankMonitor::silent(int rank, Time now) {
  if (record(rank).state != State::kAnswers) return;
  record(rank).state = State::kSilent;
  last_message_.at(static_cast<size_t>(rank)) =
      now - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(silent_after_));
}

void RankMonitor::left(int rank, bool with_error, Time now) {
  record(rank).state = State::kLeft;
  if (with_error && !error_ends_run_) error_ends_run_ = now;
}

void RankMonitor::slept(Time now) {
  std::fill(last_message_.begin(), last_message_.end(), now);
  first_sign_.reset();
}

void RankMonitor::take_over(Time now) {
  for (size_t i = 0; i < records_.size(); ++i) {
    if (records_[i].state != State::kSilent) last_message_[i] = now;
  }
  first_sign_.reset();
}

std::optional<double> RankMonitor::worst_sign(Time now) {
  std::optional<double> settle;
  double idle = 0;
  double allowed = 0;
  bool bounded = true;
  for (size_t i = 0; i < records_.size(); ++i) {
    RankRecord& one = records_[i];
    one.quiet = in_seconds(now - last_message_[i]);
    if (one.state == State::kAnswers && silent_after_ > 0 && one.quiet > silent_after_) one.state = State::kSilent;
    switch (one.state) {
      case State::kLost:
      case State::kFailed:
        return kSettleLost;
      case State::kSilent:
        settle = kSettleStuck;
        break;
      case State::kAnswers:
        // A rank may wait for as long as any rank is allowed to make no progress.
        idle = std::max(idle, one.status.idle);
        allowed = std::max(allowed, one.status.allowed);
        bounded = bounded && one.status.allowed > 0;
        break;
      case State::kLeft:
        break;
    }
  }
  if (bounded && allowed > 0 && idle > allowed) settle = kSettleStuck;
  return settle;
}

bool RankMonitor::sees_sign(Time now) {
  if (!worst_sign(now)) {
    first_sign_.reset();
  } else if (!first_sign_) {
    first_sign_ = now;
  }
  return first_sign_.has_value();
}

bool RankMonitor::alarmed(Time now) { return error_ends_run_ || sees_sign(now); }

RankMonitor::Finding RankMonitor::look(Time now) {
  if (error_ends_run_) {
    return in_seconds(now - *error_ends_run_) > kErrorLimit ? Finding::kOverdue : Finding::kNothing;
  }
  if (!sees_sign(now)) {
    reported_alarm_ = false;
    return Finding::kNothing;
  }
  if (!reported_alarm_) {
    reported_alarm_ = true;
    return Finding::kAlarm;
  }
  return in_seconds(now - *first_sign_) >= *worst_sign(now) ? Finding::kFailure : Finding::kNothing;
}

std::vector<int> RankMonitor::silent_ranks() const {
  std::vector<int> ranks;
  for (const RankRecord& one : records_) {
    if (one.state == State::kSilent) ranks.push_back(one.identity.rank);
  }
  return ranks;
}

int RankMonitor::first_present() const {
  const auto found = std::find_if(records_.begin(), records_.end(), [](const RankRecord& one) {
    return one.state == State::kAnswers || one.state == State::kFailed;
  });
  return found->identity.rank;
}

bool RankMonitor::all_ended_but(int rank) const {
  return std::all_of(records_.begin(), records_.end(), [&](const RankRecord& one) {
    return one.identity.rank == rank || one.state == State::kLeft || one.state == State::kLost;
  });
}

}  // namespace mpzero
