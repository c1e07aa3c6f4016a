#include "app/liveness/decision/rank_monitor.hpp"

#include <algorithm>
#include <utility>

namespace mpzero {
namespace {

using State = RankRecord::State;

// When a rank is gone, its launcher soon ends the others: mpirun one second after the first.
constexpr double kSettleLost = 0.4;
// Longer than a heartbeat, after which all ranks of a machine are silent, and than the time limit of a probe.
constexpr double kSettleSilent = 4;
constexpr double kProbeAfter = 1;
// All ranks stop making progress within two heartbeats.
constexpr double kSettleStuckBeats = 2.5;
// Longer than a side with more machines needs to find a new monitor and to end the run.
constexpr double kDoubt = 10;
// Time for MPI to end the ranks once one of them has reported its error, in seconds.
constexpr double kErrorLimit = 60;

LivenessClock::duration from_seconds(double seconds) {
  return std::chrono::duration_cast<LivenessClock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

LivenessClock::duration beat_period(double silent_after) {
  constexpr double kShortest = 1;
  constexpr double kLongest = 3;
  constexpr double kBeatsInLimit = 20;
  return from_seconds(silent_after > 0 ? std::clamp(silent_after / kBeatsInLimit, kShortest, kLongest) : kLongest);
}

RankMonitor::RankMonitor(const std::vector<RankIdentity>& ranks, int own, double silent_after, Time now)
    : nodes_(ranks), own_(own), last_message_(ranks.size(), now), silent_after_(silent_after) {
  records_.resize(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) records_[i].identity = ranks[i];
}

void RankMonitor::heard(int rank, const RankStatus& status, Time now) {
  RankRecord& one = record(rank);
  one.status = status;
  one.reports = true;
  last_message_.at(static_cast<size_t>(rank)) = now;
  if (one.state == State::kSilent && !one.abandoned) one.state = State::kAnswers;
}

void RankMonitor::heard(int rank, const message::Beat& beat, Time now) {
  RankStatus status = std::move(record(rank).status);
  status.step = beat.step;
  status.phase = beat.phase;
  status.idle = beat.idle;
  status.allowed = beat.allowed;
  heard(rank, status, now);
}

void RankMonitor::failed(int rank, const std::string& error, Time now, const std::vector<int>& culprits) {
  if (record(rank).state != State::kAnswers) return;
  record(rank).state = State::kFailed;
  record(rank).reports = true;
  record(rank).error = error;
  // The values come from another process: keep only ranks of this run.
  for (const int culprit : culprits) {
    if (culprit >= 0 && static_cast<size_t>(culprit) < records_.size()) record(rank).culprits.push_back(culprit);
  }
  last_message_.at(static_cast<size_t>(rank)) = now;
}

void RankMonitor::lost(int rank) {
  if (record(rank).state == State::kAnswers) record(rank).state = State::kLost;
}

void RankMonitor::silent(int rank, Time now) {
  if (record(rank).state != State::kAnswers) return;
  record(rank).state = State::kSilent;
  last_message_.at(static_cast<size_t>(rank)) = now - from_seconds(silent_after_);
}

void RankMonitor::abandoned(int rank, Time now) {
  if (record(rank).state == State::kFailed) record(rank).state = State::kAnswers;
  silent(rank, now);
  record(rank).abandoned = true;
}

void RankMonitor::sighted(int witness, int rank, message::Reach reach) {
  if (rank < 0 || static_cast<size_t>(rank) >= records_.size()) return;
  const auto [found, is_new] = sightings_.emplace(std::pair(nodes_.node_of(witness), nodes_.node_of(rank)), reach);
  if (!is_new && reach == message::Reach::kUnreachable) found->second = reach;
}

void RankMonitor::left(int rank, bool with_error, Time now) {
  record(rank).state = State::kLeft;
  if (with_error && !error_ends_run_) error_ends_run_ = now;
}

void RankMonitor::slept(Clock::duration length, Time now) {
  for (Time& last : last_message_) last = std::min(now, last + length);
  if (first_sign_) first_sign_ = std::min(now, *first_sign_ + length);
}

void RankMonitor::take_over(Time now) {
  took_over_ = true;
  for (size_t i = 0; i < records_.size(); ++i) {
    if (records_[i].state != State::kSilent) last_message_[i] = now;
  }
  first_sign_.reset();
}

std::optional<RankMonitor::Sign> RankMonitor::worst_sign(Time now) {
  bool gone = false;
  bool silent = false;
  double idle = 0;
  double allowed = 0;
  bool bounded = true;
  for (size_t i = 0; i < records_.size(); ++i) {
    RankRecord& one = records_[i];
    one.quiet = in_seconds(now - last_message_[i]);
    if (one.state == State::kAnswers && silent_after_ > 0 && one.quiet > silent_after_) one.state = State::kSilent;
    gone = gone || one.state == State::kLost || one.state == State::kFailed;
    silent = silent || one.state == State::kSilent;
    if (one.state != State::kAnswers) continue;
    // A rank may wait for as long as any rank is allowed to make no progress.
    idle = std::max(idle, one.status.idle);
    allowed = std::max(allowed, one.status.allowed);
    bounded = bounded && one.status.allowed > 0;
  }
  if (gone) return Sign{.settle = kSettleLost, .is_silence = false};
  if (silent) return Sign{.settle = kSettleSilent, .is_silence = true};
  if (!bounded || allowed <= 0 || idle <= allowed) return std::nullopt;
  return Sign{.settle = kSettleStuckBeats * in_seconds(beat_period(silent_after_)), .is_silence = false};
}

std::optional<RankMonitor::Sign> RankMonitor::sees_sign(Time now) {
  std::optional<Sign> sign = worst_sign(now);
  if (!sign) {
    first_sign_.reset();
  } else if (!first_sign_) {
    first_sign_ = now;
  }
  return sign;
}

bool RankMonitor::alarmed(Time now) { return error_ends_run_ || sees_sign(now); }

RankMonitor::Finding RankMonitor::look(Time now) {
  if (error_ends_run_) {
    return in_seconds(now - *error_ends_run_) > kErrorLimit ? Finding::kOverdue : Finding::kNothing;
  }
  const std::optional<Sign> sign = sees_sign(now);
  if (!sign) {
    reported_alarm_ = false;
    probed_ = false;
    sightings_.clear();
    return Finding::kNothing;
  }
  if (!reported_alarm_) {
    reported_alarm_ = true;
    return Finding::kAlarm;
  }
  const double lasted = in_seconds(now - *first_sign_);
  if (sign->is_silence && !probed_ && lasted >= kProbeAfter) {
    probed_ = true;
    return Finding::kProbe;
  }
  if (lasted < sign->settle) return Finding::kNothing;
  return lasted >= sign->settle + kDoubt || !in_doubt() ? Finding::kFailure : Finding::kNothing;
}

bool RankMonitor::in_doubt() {
  silence_ = judge_silence(records_, nodes_, own_, sightings_, fresh());
  if (most_lost()) return true;
  const bool knows_more = std::any_of(records_.begin(), records_.end(), [](const RankRecord& one) {
    return one.state == State::kLost || one.state == State::kFailed;
  });
  return !knows_more && silence_ && silence_->state != Silence::State::kFounded;
}

bool RankMonitor::most_lost() const {
  const auto lost =
      std::count_if(records_.begin(), records_.end(), [](const RankRecord& one) { return one.state == State::kLost; });
  return took_over_ && 2 * static_cast<size_t>(lost) > records_.size();
}

Verdict RankMonitor::verdict() const {
  return most_lost() ? most_ranks_lost(records_) : find_culprits(records_, silence_);
}

message::Ask RankMonitor::probes() const {
  return {.probe = ranks_to_probe(records_, nodes_, own_, fresh()), .by = witnesses(records_, nodes_, own_, fresh())};
}

std::vector<int> RankMonitor::silent_ranks() const {
  std::vector<int> ranks;
  for (const RankRecord& one : records_) {
    if (one.state == State::kSilent) ranks.push_back(one.identity.rank);
  }
  return ranks;
}

std::vector<bool> RankMonitor::gone() const {
  std::vector<bool> gone;
  for (const RankRecord& one : records_) gone.push_back(one.state != State::kAnswers && one.state != State::kFailed);
  return gone;
}

bool RankMonitor::all_ended_but(int rank) const {
  return std::all_of(records_.begin(), records_.end(), [&](const RankRecord& one) {
    return one.identity.rank == rank || one.state == State::kLeft || one.state == State::kLost;
  });
}

}  // namespace mpzero
