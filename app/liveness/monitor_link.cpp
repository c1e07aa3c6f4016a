#include "app/liveness/monitor_link.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>
#include <variant>

#include "app/liveness/link/strangers.hpp"

namespace mpzero {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kConnectLimit(1000);
// Time for a new monitor to end the run; after that the next one is tried.
constexpr milliseconds kTakeOverPatience(10'000);
constexpr milliseconds kRetryAfter(100);

}  // namespace

MonitorLink::MonitorLink(const RankRoster& roster, std::optional<RankConnection> connection, double silent_after,
                         LivenessTime now)
    : roster_(roster), silent_after_(silent_after), connection_(std::move(connection)), last_message_(now) {}

void MonitorLink::send(const message::Any& message) {
  if (connection_) connection_->send(message::to_line(message));
}

void MonitorLink::report(const RankReport& report) {
  if (!connection_) return;
  send(message::Status{report.status});
  if (report.error && !reported_error_) send(message::Failed{*report.error, report.culprits});
  reported_error_ = report.error.has_value();
}

MonitorLink::News MonitorLink::hear(LivenessTime now) {
  News news;
  if (retry_ && now >= *retry_) connect_again(news, now);
  if (connection_) {
    connection_->flush();
    connection_->look_at_clock(now);
    const auto lines = connection_->receive();
    if (!lines) {
      lose_connection(news, now);
    } else if (!hear(*lines, news, now)) {
      return news;
    }
  }
  if ((connection_ || retry_) && is_too_late(now)) count_as_lost(news, Loss::kSilent);
  return news;
}

bool MonitorLink::hear(const std::vector<std::string>& lines, News& news, LivenessTime now) {
  if (!lines.empty()) last_message_ = now;
  for (const std::string& line : lines) {
    const std::optional<message::Any> message = message::parse(line);
    if (!message) continue;
    if (std::holds_alternative<message::Bye>(*message)) {
      // The monitor waits for this.
      connection_.reset();
      return false;
    }
    if (std::holds_alternative<message::Ask>(*message)) news.asked = true;
    if (const auto* end = std::get_if<message::End>(&*message)) {
      news.end = *end;
      return false;
    }
  }
  return true;
}

void MonitorLink::lose_connection(News& news, LivenessTime now) {
  const Handshake::Refusal why = connection_->refusal();
  const bool was_identified = connection_->was_identified();
  connection_.reset();
  if (was_identified) {
    count_as_lost(news, Loss::kLost);
  } else {
    retry_ = now + kRetryAfter;
    unreached_ = why == Handshake::Refusal::kClosed ? Loss::kLost : Loss::kSilent;
  }
  if (warned_ || why == Handshake::Refusal::kClosed || why == Handshake::Refusal::kTooLate) return;
  warned_ = true;
  const RankIdentity& monitor = roster_.identity(monitor_);
  news.warning = fmt::format("has closed its connection to rank {} on {} (port {}), because {}", monitor_, monitor.host,
                             monitor.port, describe(why));
}

void MonitorLink::connect_again(News& news, LivenessTime now) {
  retry_.reset();
  connection_ = connect_to_rank(roster_, monitor_, kConnectLimit, now, ++attempt_);
  if (!connection_) return count_as_lost(news, unreached_);
  reported_error_ = false;
  news.asked = true;
}

void MonitorLink::count_as_lost(News& news, Loss how) {
  connection_.reset();
  retry_.reset();
  news.loss = how;
}

bool MonitorLink::is_too_late(LivenessTime now) const {
  const bool is_silent = silent_after_ > 0 && in_seconds(now - last_message_) > silent_after_;
  const bool does_not_end_the_run = turned_ && now - *turned_ > kTakeOverPatience;
  return is_silent || does_not_end_the_run;
}

bool MonitorLink::turn_to_next(RankMonitor& records, Loss how, LivenessTime now) {
  connection_.reset();
  retry_.reset();
  attempt_ = 0;
  warned_ = false;
  while (true) {
    if (how == Loss::kLost) {
      records.lost(monitor_);
    } else {
      records.silent(monitor_, now);
    }
    monitor_ = records.first_present();
    if (monitor_ == roster_.own) return false;
    connection_ = connect_to_rank(roster_, monitor_, kConnectLimit, now);
    if (connection_) break;
    how = Loss::kSilent;
  }
  turned_ = now;
  last_message_ = now;
  reported_error_ = false;
  return true;
}

void MonitorLink::leave(bool with_error) {
  if (!connection_) return;
  send(message::Bye{.with_error = with_error});
  const LivenessTime start = LivenessClock::now();
  const auto in_time = [&] { return LivenessClock::now() - start < kFarewell; };
  // A connection that is not yet identified sends what it keeps once it is, and must receive for that.
  while (connection_->has_unsent() && (connection_->is_identified() || connection_->receive()) && in_time()) {
    connection_->flush();
    std::this_thread::sleep_for(milliseconds(5));
  }
  // If a connection is closed with unread input, TCP discards what it has sent and the other side has not read yet.
  connection_->end_sending();
  while (connection_->receive() && in_time()) std::this_thread::sleep_for(milliseconds(1));
}

}  // namespace mpzero
