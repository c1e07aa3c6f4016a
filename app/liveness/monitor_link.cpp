#include "app/liveness/monitor_link.hpp"

#include <chrono>
#include <thread>
#include <utility>
#include <variant>

namespace mpzero {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kConnectLimit(1000);
// For a new monitor to end the run; after it the next one is tried.
constexpr milliseconds kTakeOverPatience(10'000);

}  // namespace

MonitorLink::MonitorLink(const RankRoster& roster, std::optional<LineConnection> connection, double silent_after,
                         LivenessTime now)
    : roster_(roster), silent_after_(silent_after), connection_(std::move(connection)), last_word_(now) {}

void MonitorLink::say(const message::Any& words) {
  if (connection_) connection_->send(message::to_line(words));
}

void MonitorLink::report(const RankReport& report) {
  if (!connection_) return;
  say(message::Status{report.status});
  if (report.error && !said_error_) say(message::Failed{*report.error, report.culprits});
  said_error_ = report.error.has_value();
}

MonitorLink::News MonitorLink::hear(LivenessTime now) {
  News news;
  if (!connection_) return news;
  connection_->flush();
  const auto lines = connection_->receive();
  if (!lines) {
    connection_.reset();
    news.gone = Gone::kLost;
    return news;
  }
  if (!lines->empty()) last_word_ = now;
  for (const std::string& line : *lines) {
    const std::optional<message::Any> words = message::parse(line);
    if (!words) continue;
    if (std::holds_alternative<message::Bye>(*words)) {
      // Which the monitor waits for.
      connection_.reset();
      return news;
    }
    if (std::holds_alternative<message::Ask>(*words)) news.asked = true;
    if (const auto* end = std::get_if<message::End>(&*words)) {
      news.end = *end;
      return news;
    }
  }
  const bool is_silent = silent_after_ > 0 && in_seconds(now - last_word_) > silent_after_;
  const bool does_not_end_the_run = turned_ && now - *turned_ > kTakeOverPatience;
  if (is_silent || does_not_end_the_run) {
    connection_.reset();
    news.gone = Gone::kSilent;
  }
  return news;
}

bool MonitorLink::turn_to_next(RankMonitor& records, Gone how, LivenessTime now) {
  connection_.reset();
  while (true) {
    if (how == Gone::kLost) {
      records.lost(monitor_);
    } else {
      records.silent(monitor_, now);
    }
    monitor_ = records.first_present();
    if (monitor_ == roster_.own) return false;
    connection_ = connect_to_rank(roster_, monitor_, kConnectLimit);
    if (connection_) break;
    how = Gone::kSilent;
  }
  turned_ = now;
  last_word_ = now;
  said_error_ = false;
  return true;
}

void MonitorLink::leave(bool with_error) {
  if (!connection_) return;
  say(message::Bye{.with_error = with_error});
  const LivenessTime start = LivenessClock::now();
  const auto in_time = [&] { return LivenessClock::now() - start < kFarewell; };
  while (connection_->has_unsent() && in_time()) {
    connection_->flush();
    std::this_thread::sleep_for(milliseconds(5));
  }
  // A connection that is closed with words unread takes back those that it has sent and the other side has not read.
  connection_->end_sending();
  while (connection_->receive() && in_time()) std::this_thread::sleep_for(milliseconds(1));
}

}  // namespace mpzero
