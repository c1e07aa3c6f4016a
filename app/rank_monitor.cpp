#include "app/rank_monitor.hpp"

#include <algorithm>

namespace mpzero {
namespace {

using State = RankRecord::State;

// Where a rank is gone, its launcher soon ends the others: one second after the first under mpirun.
constexpr double kSettleGone = 0.4;
// All ranks come to stand still, or notice the silence of another, within two heartbeats.
constexpr double kSettleStuck = 2.5;

double seconds(RankMonitor::Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

RankMonitor::RankMonitor(const std::vector<RankIdentity>& ranks, double silent_after, Time now)
    : last_word_(ranks.size(), now), silent_after_(silent_after) {
  records_.resize(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) records_[i].identity = ranks[i];
}

void RankMonitor::heard(int rank, const RankStatus& status, Time now) {
  record(rank).status = status;
  last_word_.at(static_cast<size_t>(rank)) = now;
  if (record(rank).state == State::kSilent) record(rank).state = State::kAnswers;
}

void RankMonitor::failed(int rank, const std::string& error, Time now) {
  if (record(rank).state != State::kAnswers) return;
  record(rank).state = State::kFailed;
  record(rank).error = error;
  last_word_.at(static_cast<size_t>(rank)) = now;
}

void RankMonitor::lost(int rank) {
  if (record(rank).state == State::kLeft || record(rank).state == State::kFailed) return;
  record(rank).state = State::kLost;
}

void RankMonitor::silent(int rank, Time now) {
  if (record(rank).state != State::kAnswers) return;
  record(rank).state = State::kSilent;
  last_word_.at(static_cast<size_t>(rank)) =
      now - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(silent_after_));
}

void RankMonitor::left(int rank) { record(rank).state = State::kLeft; }

void RankMonitor::slept(Time now) {
  std::fill(last_word_.begin(), last_word_.end(), now);
  first_sign_.reset();
}

std::optional<double> RankMonitor::worst_sign(Time now) {
  std::optional<double> settle;
  double idle = 0;
  double allowed = 0;
  bool bounded = true;
  for (size_t i = 0; i < records_.size(); ++i) {
    RankRecord& one = records_[i];
    one.quiet = seconds(now - last_word_[i]);
    if (one.state == State::kAnswers && silent_after_ > 0 && one.quiet > silent_after_) one.state = State::kSilent;
    switch (one.state) {
      case State::kLost:
      case State::kFailed:
        return kSettleGone;
      case State::kSilent:
        settle = kSettleStuck;
        break;
      case State::kAnswers:
        // A rank may wait for as long as any of them may stand still.
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

bool RankMonitor::alarmed(Time now) {
  if (!worst_sign(now)) {
    first_sign_.reset();
  } else if (!first_sign_) {
    first_sign_ = now;
  }
  return first_sign_.has_value();
}

bool RankMonitor::concluded(Time now) { return alarmed(now) && seconds(now - *first_sign_) >= *worst_sign(now); }

bool RankMonitor::all_gone_but(int rank) const {
  return std::all_of(records_.begin(), records_.end(), [&](const RankRecord& one) {
    return one.identity.rank == rank || one.state == State::kLeft || one.state == State::kLost;
  });
}

}  // namespace mpzero
