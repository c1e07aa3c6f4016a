#include "app/liveness/decision/rank_monitor.hpp"

#include <algorithm>
#include <utility>

namespace mpzero {
namespace {

using State = RankRecord::State;

// If other ranks do not answer either: less than srun --wait=30 leaves.
constexpr double kUnclearLoss = 20;
// The same for an error, which does not end a process, if silence has no limit.
constexpr double kUnclearError = 60;
// Longer than a heartbeat, after which all ranks of a machine are silent, and than the time limit of a probe.
constexpr double kSettleSilent = 4;
constexpr double kProbeAfter = 1;
constexpr double kProbeAgain = 1;
// Longer than the time limit of a probe.
constexpr double kProbeAnswers = 3;
constexpr double kKnockAfter = 1;
// A heartbeat that comes later than that was delayed, and so was what follows it within a second.
constexpr double kLateBeats = 1.5;
constexpr double kCatchesUp = 1;
constexpr size_t kMostKnocks = 16;  // at once
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
    : nodes_(ranks),
      own_(own),
      last_message_(ranks.size(), now),
      caught_up_(ranks.size()),
      silent_after_(silent_after) {
  records_.resize(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) records_[i].identity = ranks[i];
}

void RankMonitor::heard(int rank, const RankStatus& status, Time now) {
  RankRecord& one = record(rank);
  one.status = status;
  one.reports = true;
  one.mute = false;
  note_message(rank, now);
}

void RankMonitor::heard(int rank, const message::Beat& beat, Time now) {
  RankStatus status = std::move(record(rank).status);
  status.step = beat.step;
  status.phase = beat.phase;
  status.idle = beat.idle;
  status.allowed = beat.allowed;
  heard(rank, status, now);
}

// Another message may have been sent before the rank was asked.
void RankMonitor::answered(int rank, int64_t number) {
  const bool is_first = number == message::Status::kFirst;
  if (number == num_asks_ || is_first) record(rank).answered = true;
  const bool is_since_gone = gone_ask_ && number >= *gone_ask_ && number <= num_asks_;
  if (is_since_gone || is_first) record(rank).answered_since_gone = true;
}

void RankMonitor::failed(int rank, const std::string& error, Time now, const std::vector<int>& culprits) {
  note_message(rank, now);
  if (record(rank).state != State::kAnswers) return;
  record(rank).state = State::kFailed;
  record(rank).reports = true;
  record(rank).error = error;
  record(rank).error_order = ++num_errors_;
  // The values come from another process: keep only ranks of this run.
  for (const int culprit : culprits) {
    if (culprit >= 0 && static_cast<size_t>(culprit) < records_.size()) record(rank).culprits.push_back(culprit);
  }
  record(rank).had_answered = has_answered(record(rank));
}

void RankMonitor::note_message(int rank, Time now) {
  Time& last = last_message_.at(static_cast<size_t>(rank));
  if (is_late(now - last)) caught_up_.at(static_cast<size_t>(rank)) = now;
  last = now;
  RankRecord& one = record(rank);
  if (one.state != State::kSilent) return;
  changed_ = now;
  if (!one.abandoned) one.state = State::kAnswers;
}

bool RankMonitor::is_late(Clock::duration quiet) const {
  return in_seconds(quiet) > kLateBeats * in_seconds(beat_period(silent_after_));
}

void RankMonitor::lost(int rank) {
  if (record(rank).state == State::kAnswers) record(rank).state = State::kLost;
}

void RankMonitor::ended(int rank) {
  if (record(rank).state == State::kAnswers) record(rank).state = State::kEnded;
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
  changed_ = now;
}

void RankMonitor::sighted(int witness, int rank, message::Reach reach) {
  if (rank < 0 || static_cast<size_t>(rank) >= records_.size()) return;
  if (witness == own_ && reach == message::Reach::kRefused) ended(rank);
  const auto [found, is_new] = sightings_.emplace(std::pair(nodes_.node_of(witness), rank), reach);
  if (!is_new && reach == message::Reach::kUnreachable) found->second = reach;
}

void RankMonitor::turned(int witness, int rank) {
  if (rank < 0 || static_cast<size_t>(rank) >= records_.size()) return;
  turned_.emplace(nodes_.node_of(witness), rank);
}

Sightings RankMonitor::all_sightings() const {
  Sightings all = sightings_;
  for (const auto& [witness, monitor] : turned_) {
    all.emplace(std::pair(witness, monitor), message::Reach::kUnreachable);
    for (const int rank : nodes_.ranks_of(nodes_.node_of(monitor))) {
      const auto seen = all.find({witness, rank});
      if (seen != all.end() && seen->second == message::Reach::kAnswers) seen->second = message::Reach::kUnreachable;
    }
  }
  return all;
}

void RankMonitor::left(int rank, bool with_error, Time now) {
  record(rank).state = State::kLeft;
  if (with_error && !error_ends_run_) error_ends_run_ = now;
}

void RankMonitor::slept(Clock::duration length, Time now) {
  for (Time& last : last_message_) last = std::min(now, last + length);
  for (std::optional<Time>* since : {&gone_since_, &silent_since_, &stuck_since_, &asked_, &changed_}) {
    if (*since) *since = std::min(now, **since + length);
  }
  // What this process asked others to find out may have been found out while it did not run, by then or not at all.
  probed_.reset();
  slept_ = true;
}

void RankMonitor::take_over(Time now) {
  took_over_ = true;
  for (size_t i = 0; i < records_.size(); ++i) {
    if (records_[i].state != State::kSilent) last_message_[i] = now;
  }
  gone_since_.reset();
  gone_ask_.reset();
  silent_since_.reset();
  stuck_since_.reset();
}

RankMonitor::Signs RankMonitor::signs(Time now) {
  Signs signs;
  double idle = 0;
  double allowed = 0;
  bool bounded = true;
  for (size_t i = 0; i < records_.size(); ++i) {
    RankRecord& one = records_[i];
    one.quiet = in_seconds(now - last_message_[i]);
    if (one.state == State::kAnswers && silent_after_ > 0 && one.quiet > silent_after_) one.state = State::kSilent;
    signs.lost = signs.lost || one.state == State::kLost;
    signs.failed = signs.failed || one.state == State::kFailed;
    signs.names_culprits = signs.names_culprits || (one.state == State::kFailed && !one.culprits.empty());
    signs.silent = signs.silent || one.state == State::kSilent;
    if (one.state != State::kAnswers) continue;
    // A rank may wait for as long as any rank is allowed to make no progress.
    idle = std::max(idle, one.status.idle);
    allowed = std::max(allowed, one.status.allowed);
    bounded = bounded && one.status.allowed > 0;
  }
  signs.stuck = bounded && allowed > 0 && idle > allowed;
  return signs;
}

void RankMonitor::time_sign(bool is_there, std::optional<Time>& since, Time now) {
  if (!is_there) return since.reset();
  if (since) return;
  since = now;
  ask_is_due_ = true;
}

void RankMonitor::order_gone(Time now) {
  int num_new = 0;
  for (size_t i = 0; i < records_.size(); ++i) {
    RankRecord& one = records_[i];
    const bool is_gone = one.state == State::kLost || one.state == State::kFailed;
    if (!is_gone) one.gone_after.reset();
    if (!is_gone || one.gone_after) continue;
    if (!gone_since_) gone_since_ = now;
    one.gone_after = in_seconds(now - *gone_since_);
    if (one.state == State::kLost) one.had_answered = has_answered(one);
    const bool catches_up = caught_up_[i] && in_seconds(now - *caught_up_[i]) < kCatchesUp;
    one.came_late = catches_up || is_late(now - last_message_[i]);
    ++num_new;
  }
  const bool has_slept = std::exchange(slept_, false);
  is_mixed_ = is_mixed_ || (has_slept && num_new > 1);
}

RankMonitor::Signs RankMonitor::see_signs(Time now) {
  const Signs signs = this->signs(now);
  time_sign(signs.lost || signs.failed, gone_since_, now);
  order_gone(now);
  if (!gone_since_) gone_ask_.reset();
  time_sign(signs.silent, silent_since_, now);
  time_sign(signs.stuck, stuck_since_, now);
  if (!signs.silent) {
    probed_.reset();
    probed_nodes_.clear();
    sightings_.clear();
  }
  if (!signs.any()) {
    ask_is_due_ = false;
    is_mixed_ = false;
    asked_.reset();
  }
  return signs;
}

bool RankMonitor::alarmed(Time now) { return error_ends_run_ || see_signs(now).any(); }

RankMonitor::Finding RankMonitor::look(Time now) {
  if (error_ends_run_) {
    return in_seconds(now - *error_ends_run_) > kErrorLimit ? Finding::kOverdue : Finding::kNothing;
  }
  const Signs signs = see_signs(now);
  if (!signs.any()) {
    turned_.clear();
    return Finding::kNothing;
  }
  if (std::exchange(ask_is_due_, false)) {
    ask_all(now);
    return Finding::kAlarm;
  }
  if (signs.silent && wants_probe(now)) {
    begin_probe(now);
    return Finding::kProbe;
  }
  ground_ = ground(signs, now);
  if (ground_) return Finding::kFailure;
  return gone_since_ && wants_knock(now) ? Finding::kKnock : Finding::kNothing;
}

void RankMonitor::ask_all(Time now) {
  ++num_asks_;
  const bool is_first = gone_since_ && !gone_ask_;
  if (is_first) gone_ask_ = num_asks_;
  for (RankRecord& one : records_) {
    one.answered = false;
    if (is_first) one.answered_since_gone = false;
  }
  asked_ = now;
  knocked_.clear();
}

bool RankMonitor::all_answered() const {
  return std::none_of(records_.begin(), records_.end(),
                      [this](const RankRecord& one) { return one.state == State::kSilent || waits_for(one); });
}

std::set<int> RankMonitor::silent_nodes() const {
  std::set<int> silent;
  for (const RankRecord& one : records_) {
    if (one.state == State::kSilent) silent.insert(nodes_.node_of(one.identity.rank));
  }
  return silent;
}

bool RankMonitor::wants_probe(Time now) const {
  if (in_seconds(now - *silent_since_) < kProbeAfter) return false;
  if (!probed_) return true;
  const std::set<int> silent = silent_nodes();
  const double since = in_seconds(now - *probed_);
  if (since >= kProbeAnswers && !most_witnesses_spoke()) return true;
  return since >= kProbeAgain &&
         !std::includes(probed_nodes_.begin(), probed_nodes_.end(), silent.begin(), silent.end());
}

void RankMonitor::begin_probe(Time now) {
  const std::set<int> silent = silent_nodes();
  const bool repeats = probed_ && silent == probed_nodes_;
  if (!repeats) sightings_.clear();
  probed_ = now;
  probed_nodes_ = silent;
  witness_nodes_.clear();
  for (const int rank : witnesses(records_, nodes_, own_, fresh())) witness_nodes_.insert(nodes_.node_of(rank));
}

bool RankMonitor::most_witnesses_spoke() const {
  std::set<int> spoke;
  for (const auto& [pair, reach] : sightings_) {
    if (witness_nodes_.contains(pair.first)) spoke.insert(pair.first);
  }
  return 2 * spoke.size() >= witness_nodes_.size();
}

bool RankMonitor::wants_knock(Time now) const {
  return in_seconds(now - *asked_) >= kKnockAfter &&
         std::any_of(records_.begin(), records_.end(),
                     [this](const RankRecord& one) { return waits_for(one) && !knocked_.contains(one.identity.rank); });
}

std::vector<int> RankMonitor::knocks() {
  std::vector<int> ranks;
  for (const RankRecord& one : records_) {
    if (ranks.size() == kMostKnocks) break;
    if (waits_for(one) && knocked_.insert(one.identity.rank).second) ranks.push_back(one.identity.rank);
  }
  return ranks;
}

std::optional<RankMonitor::Ground> RankMonitor::ground(const Signs& signs, Time now) {
  const auto lasts = [&](const std::optional<Time>& since) { return since ? in_seconds(now - *since) : 0; };
  const double settle_stuck = kSettleStuckBeats * in_seconds(beat_period(silent_after_));
  const double silence_limit = silent_after_ + kSettleSilent + kDoubt;
  if (signs.lost || signs.failed) {
    const double lasted = lasts(gone_since_);
    if (lasted < kSettleGone) return std::nullopt;
    // Meanwhile a side with more machines ends the run.
    if (most_gone()) return lasted < kSettleGone + kDoubt ? std::nullopt : std::optional(Ground::kGone);
    if (all_answered() && is_order_known()) return Ground::kGone;
    if (signs.names_culprits) return Ground::kNamed;
    if (all_answered()) return Ground::kUnclear;
  }
  const bool is_late = signs.lost && lasts(gone_since_) >= kUnclearLoss;
  if (signs.silent) {
    const std::optional<Ground> silence = ground_of_silence(now);
    return silence || !is_late ? silence : std::optional(Ground::kUnclear);
  }
  if (gone_since_) {
    const double limit = signs.lost ? kUnclearLoss : silent_after_ > 0 ? silence_limit : kUnclearError;
    return lasts(gone_since_) < limit ? std::nullopt : std::optional(Ground::kUnclear);
  }
  const double lasted = lasts(stuck_since_);
  if (lasted < settle_stuck) return std::nullopt;
  if (all_answered()) return Ground::kStuck;
  return lasted < settle_stuck + silence_limit ? std::nullopt : std::optional(Ground::kUnclear);
}

std::optional<RankMonitor::Ground> RankMonitor::ground_of_silence(Time now) {
  const double lasted = in_seconds(now - *silent_since_);
  const bool is_overdue = lasted >= kSettleSilent + kDoubt;
  const bool probes_are_out = !probed_ || in_seconds(now - *probed_) < kProbeAnswers;
  // A network that works again delivers what it has delayed, and not that of all ranks of a machine at once.
  const bool changes = changed_ && in_seconds(now - *changed_) < kSettleSilent && lasted < kSettleSilent + 2 * kDoubt;
  if (lasted < kSettleSilent || changes || (probes_are_out && !is_overdue)) return std::nullopt;
  silence_ = judge_silence(records_, nodes_, own_, all_sightings(), fresh());
  const bool is_founded = silence_ && silence_->state == Silence::State::kFounded && most_witnesses_spoke();
  return is_founded || is_overdue ? std::optional(Ground::kSilence) : std::nullopt;
}

bool RankMonitor::is_order_known() const {
  if (is_mixed_) return false;
  const auto num_first =
      std::count_if(records_.begin(), records_.end(), [](const RankRecord& one) { return one.is_lost_first(); });
  return std::all_of(records_.begin(), records_.end(), [&](const RankRecord& one) {
    switch (one.state) {
      case State::kEnded:
        return !one.reports || has_answered(one);
      case State::kLost:
        return one.is_lost_first() ? num_first == 1 || !one.came_late : one.had_answered;
      case State::kFailed:
        return one.had_answered ||
               (one.gone_after.value_or(0) < kSettleGone && !(one.came_late && (num_first > 0 || one.error_order > 1)));
      default:
        return true;
    }
  });
}

bool RankMonitor::most_gone() const {
  const auto gone = std::count_if(records_.begin(), records_.end(), [](const RankRecord& one) {
    return one.state == State::kLost || one.state == State::kEnded;
  });
  return took_over_ && 2 * static_cast<size_t>(gone) > records_.size();
}

Verdict RankMonitor::verdict() const {
  switch (ground_.value_or(Ground::kUnclear)) {
    case Ground::kGone:
      return most_gone() ? most_ranks_gone(records_) : find_culprits(records_);
    case Ground::kNamed:
      return named_culprits(records_);
    case Ground::kSilence:
      return find_culprits(records_, silence_);
    case Ground::kStuck:
      return find_culprits(records_);
    case Ground::kUnclear:
      break;
  }
  std::vector<int> unheard;
  for (const RankRecord& one : records_) {
    if (waits_for(one) || one.state == State::kSilent) unheard.push_back(one.identity.rank);
  }
  return unclear_cause(records_, unheard);
}

message::Ask RankMonitor::probes() const {
  return {.probe = ranks_to_probe(records_, nodes_, own_, fresh()),
          .by = witnesses(records_, nodes_, own_, fresh()),
          .number = num_asks_};
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
    return one.identity.rank == rank || one.state == State::kLeft || one.state == State::kLost ||
           one.state == State::kEnded;
  });
}

}  // namespace mpzero
