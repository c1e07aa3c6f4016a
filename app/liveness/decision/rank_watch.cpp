#include "app/liveness/decision/rank_watch.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/error.hpp"

namespace mpzero {
namespace {

using message::Reach;
using std::chrono::milliseconds;

constexpr milliseconds kSearchLimit(5000);
// The answers arrive before silence counts (RankMonitor).
constexpr milliseconds kProbeLimit(2000);
// In addition to the limit for silence: longer than a new monitor needs to end the run, also in doubt.
constexpr milliseconds kTakeOverPatience(30'000);
// To connect to a candidate, without a descriptor.
constexpr int kMostAttempts = 3;
// To reach a candidate while this process does not run now and then.
constexpr int kMostDisturbed = 5;
// Of so many heartbeats one says which collectives the rank is in. Of a rank that is asked, each does.
constexpr int64_t kFullBeats = 10;

message::Beat brief(const RankStatus& status) {
  return {.step = status.step, .phase = status.phase, .idle = status.idle, .allowed = status.allowed};
}

}  // namespace

RankWatch::RankWatch(const std::vector<RankIdentity>& ranks, int own, double silent_after, WatchWires& wires, Time now)
    : own_(own),
      silent_after_(silent_after),
      wires_(wires),
      monitor_(ranks, own, silent_after, now),
      succession_(monitor_.nodes(), own),
      state_(own == 0 ? State::kMonitors : State::kReports),
      last_message_(now),
      next_beat_(now) {}

void RankWatch::beat(const RankReport& own, Time now) {
  next_beat_ = now + beat_period(silent_after_);
  if (monitors()) {
    monitor_.heard(own_, own.status, now);
    if (own.error) monitor_.failed(own_, *own.error, now, own.culprits);
    reported_error_ = own.error.has_value();
    wires_.to_reporters(message::Pulse{});
    return;
  }
  if (state_ != State::kReports) return;
  const bool is_news = own.error && !reported_error_;
  // Before the answer to an Ask: the error was there first.
  if (is_news) wires_.to_monitor(message::Failed{*own.error, own.culprits});
  // Ranks send theirs at different times.
  const bool is_full = (own_ + beats_++) % kFullBeats == 0;
  if (asked_ != 0 || is_news || is_full) {
    wires_.to_monitor(message::Status{.status = own.status, .answers = std::exchange(asked_, 0)});
  } else {
    wires_.to_monitor(brief(own.status));
  }
  reported_error_ = own.error.has_value();
}

void RankWatch::hear_reporter(int rank, const message::Any& message, Time now) {
  if (const auto* status = std::get_if<message::Status>(&message)) {
    monitor_.heard(rank, status->status, now);
    monitor_.answered(rank, status->answers);
  } else if (const auto* beat = std::get_if<message::Beat>(&message)) {
    monitor_.heard(rank, *beat, now);
  } else if (const auto* failed = std::get_if<message::Failed>(&message)) {
    monitor_.failed(rank, failed->error, now, failed->culprits);
  } else if (const auto* bye = std::get_if<message::Bye>(&message)) {
    monitor_.left(rank, bye->with_error, now);
  } else if (const auto* turned = std::get_if<message::Turned>(&message)) {
    monitor_.turned(rank, turned->from);
  } else if (const auto* probed = std::get_if<message::Probed>(&message)) {
    monitor_.sighted(rank, probed->rank, probed->reach);
  } else if (std::holds_alternative<message::Abandon>(message) && monitors()) {
    monitor_.abandoned(rank, now);
  }
}

void RankWatch::hear_monitor(const message::Any& message, Time now) {
  if (state_ != State::kReports || ended_) return;
  last_message_ = now;
  if (std::holds_alternative<message::Bye>(message)) {
    state_ = State::kFree;
    wires_.leave_monitor();
  } else if (const auto* end = std::get_if<message::End>(&message)) {
    ended_.emplace().end = *end;
  } else if (const auto* ask = std::get_if<message::Ask>(&message)) {
    asked_ = ask->number;
    next_beat_ = now;
    if (std::find(ask->by.begin(), ask->by.end(), own_) != ask->by.end()) probe(ask->probe);
  }
}

void RankWatch::lose_monitor(bool by_network, Time now) {
  if (state_ == State::kReports && !ended_) turn(by_network, now);
}

void RankWatch::probe(const std::vector<int>& ranks) {
  const int most = static_cast<int>(monitor_.records().size());
  for (const int rank : ranks) {
    if (rank >= 0 && rank < most && rank != own_) dial(rank, /*for_probe=*/true, kProbeLimit);
  }
}

void RankWatch::dial(int rank, bool for_probe, LivenessClock::duration limit) {
  const auto [found, is_new] = dials_.try_emplace(rank);
  Dial& dial = found->second;
  (for_probe ? dial.for_probe : dial.for_search) = true;
  const bool is_void = dial.disturbed && !dial.answered;
  if (is_void) wires_.hang_up(rank);
  if (is_new || is_void) wires_.dial(rank, dial.for_search ? kSearchLimit : limit);
  dial.disturbed = false;
}

bool RankWatch::dials_again(int rank, Dial& dial, std::optional<Reach> reach) {
  const bool is_sure = reach == Reach::kAnswers || reach == Reach::kRefused;
  const bool was_disturbed = std::exchange(dial.disturbed, false);
  if (is_sure || (reach && !was_disturbed)) return false;
  dial.for_probe = false;
  if (!reach && ++dial.attempts == kMostAttempts) return false;
  if (reach && ++dial.num_disturbed == kMostDisturbed) return false;
  if (!dial.for_search) return false;
  wires_.dial(rank, kSearchLimit);
  return true;
}

void RankWatch::dialed(int rank, std::optional<Reach> reach, Time now) {
  const auto found = dials_.find(rank);
  if (found == dials_.end()) return;
  Dial& dial = found->second;
  dial.answered = reach == Reach::kAnswers;
  if (dials_again(rank, dial, reach)) return;
  if (std::exchange(dial.for_probe, false)) report_probed(rank, *reach);
  const bool for_search = dial.for_search;
  if (!dial.answered || !for_search) {
    if (dial.answered) wires_.hang_up(rank);
    dials_.erase(found);
  }
  if (!for_search || state_ != State::kSeeks) return;
  succession_.tried(rank, reach);
  search(now);
}

void RankWatch::hear_dialed(const message::Any& message) {
  const auto* end = std::get_if<message::End>(&message);
  if (end != nullptr && state_ == State::kSeeks && !ended_) ended_.emplace().end = *end;
}

void RankWatch::lose_dialed(int rank, bool by_network, Time now) {
  dialed(rank, by_network ? Reach::kUnreachable : Reach::kRefused, now);
}

void RankWatch::report_probed(int rank, Reach reach) {
  if (monitors()) {
    monitor_.sighted(own_, rank, reach);
  } else {
    wires_.to_monitor(message::Probed{rank, reach});
  }
}

void RankWatch::slept(LivenessClock::duration length, Time now) {
  last_message_ = std::min(now, last_message_ + length);
  for (auto& [rank, dial] : dials_) dial.disturbed = true;
  if (turned_) turned_ = std::min(now, *turned_ + length);
  monitor_.slept(length, now);
}

void RankWatch::turn(bool silent, Time now) {
  if (silent) {
    wires_.to_monitor(message::Abandon{});
    silent_monitors_.push_back(monitor_rank_);
    monitor_.silent(monitor_rank_, now);
    wires_.abandon_monitor();
  } else {
    monitor_.lost(monitor_rank_);
    monitor_.order_gone(now);
    wires_.leave_monitor();
  }
  state_ = State::kSeeks;
  succession_.begin(monitor_.gone());
  search(now);
}

void RankWatch::search(Time now) {
  if (const std::optional<int> choice = succession_.choice()) {
    record_search(now);
    for (auto dial = dials_.begin(); dial != dials_.end();) {
      dial->second.for_search = false;
      const bool is_other = dial->first != *choice && !dial->second.for_probe;
      if (is_other) wires_.hang_up(dial->first);
      dial = is_other ? dials_.erase(dial) : std::next(dial);
    }
    if (*choice == own_) {
      take_over(now);
    } else {
      report_to(*choice, now);
    }
    return;
  }
  for (const int rank : succession_.wanted()) {
    const auto found = dials_.find(rank);
    if (found == dials_.end() || !found->second.answered) dial(rank, /*for_probe=*/false, kSearchLimit);
  }
}

void RankWatch::record_search(Time now) {
  for (const int rank : succession_.unreachable()) monitor_.silent(rank, now);
  for (const int rank : succession_.mute()) monitor_.mute(rank);
  for (const int rank : succession_.refused()) monitor_.ended(rank);
}

void RankWatch::report_to(int rank, Time now) {
  dials_.erase(rank);
  wires_.report_to(rank);
  state_ = State::kReports;
  monitor_rank_ = rank;
  turned_ = now;
  last_message_ = now;
  reported_error_ = false;
  asked_ = message::Status::kFirst;
  next_beat_ = now;
  for (const int silent : silent_monitors_) wires_.to_monitor(message::Turned{silent});
}

void RankWatch::take_over(Time now) {
  state_ = State::kMonitors;
  monitor_rank_ = own_;
  next_beat_ = now;
  monitor_.take_over(now);
}

void RankWatch::look(Time now) {
  if (ended_) return;
  if (state_ == State::kReports) {
    const bool is_silent = silent_after_ > 0 && in_seconds(now - last_message_) > silent_after_;
    const bool is_late = turned_ && in_seconds(now - *turned_ - kTakeOverPatience) > silent_after_;
    if (is_silent || is_late) turn(/*silent=*/true, now);
  }
  if (monitors()) look_for_failures(now);
}

void RankWatch::look_for_failures(Time now) {
  switch (monitor_.look(now)) {
    case RankMonitor::Finding::kNothing:
      break;
    case RankMonitor::Finding::kAlarm:
      wires_.to_reporters(monitor_.ask());
      next_beat_ = now;
      break;
    case RankMonitor::Finding::kKnock:
      probe(monitor_.knocks());
      break;
    case RankMonitor::Finding::kProbe: {
      const message::Ask ask = monitor_.probes();
      wires_.to_reporters(ask);
      probe(ask.probe);
      break;
    }
    case RankMonitor::Finding::kFailure:
      ended_.emplace().end = {.exit_code = kFailureExitCode, .kill = monitor_.silent_ranks()};
      ended_->verdict = monitor_.verdict();
      break;
    case RankMonitor::Finding::kOverdue:
      ended_.emplace().end = {.exit_code = kFailureExitCode, .kill = {}};
      break;
  }
}

}  // namespace mpzero
