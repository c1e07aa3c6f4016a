#include "app/liveness/watch_sockets.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <variant>

namespace mpzero {
namespace {

using std::chrono::milliseconds;

bool is_heartbeat(const message::Any& message) {
  return std::holds_alternative<message::Beat>(message) || std::holds_alternative<message::Status>(message);
}

}  // namespace

WatchSockets::WatchSockets(const RankRoster& roster, RankPeers peers, std::optional<RankConnection> monitor)
    : peers_(std::move(peers)), dialer_(roster), link_(std::move(monitor)) {}

void WatchSockets::add_to(std::vector<pollfd>& wanted) const {
  const auto want = [&](int descriptor) { wanted.push_back({.fd = descriptor, .events = POLLIN, .revents = 0}); };
  want(peers_.descriptor());
  want(dialer_.descriptor());
  if (link_) want(link_->descriptor());
  for (const auto& [rank, connection] : dialed_) want(connection.descriptor());
}

std::optional<LivenessTime> WatchSockets::wakes_at() const {
  const auto dialer = dialer_.wakes_at();
  const auto peers = peers_.rests_until();
  return dialer && peers ? std::min(*dialer, *peers) : dialer ? dialer : peers;
}

WatchSockets::News WatchSockets::hear(RankWatch& watch, LivenessTime now) {
  now_ = now;
  News news;
  hear_link(watch, news);
  hear_reporters(watch, news);
  hear_dialed(watch, news);
  if (std::string warning = peers_.take_warning(now); !warning.empty()) news.warnings.push_back(std::move(warning));
  return news;
}

void WatchSockets::hear_link(RankWatch& watch, News& news) {
  if (!link_) return;
  link_->flush();
  const auto lines = link_->receive();
  if (!lines) {
    news.is_urgent = true;
    const bool by_network = link_->broken_by_network();
    link_.reset();
    return watch.lose_monitor(by_network, now_);
  }
  for (const std::string& line : *lines) {
    const std::optional<message::Any> message = message::parse(line);
    if (!message) continue;
    news.is_urgent = news.is_urgent || !std::holds_alternative<message::Pulse>(*message);
    watch.hear_monitor(*message, now_);
  }
}

void WatchSockets::hear_reporters(RankWatch& watch, News& news) {
  for (const RankPeers::News& one : peers_.hear(now_)) {
    news.is_urgent = news.is_urgent || !one.message || !is_heartbeat(*one.message);
    if (!one.message) {
      watch.lose_reporter(one.rank);
    } else if (const auto* stop = std::get_if<message::Stop>(&*one.message)) {
      news.stops.emplace_back(one.rank, *stop);
    } else {
      watch.hear_reporter(one.rank, *one.message, now_);
    }
  }
}

void WatchSockets::hear_dialed(RankWatch& watch, News& news) {
  std::vector<Dialer::Answer> answers = dialer_.hear(now_);
  // All of them first: the choice of one hangs the others up.
  for (Dialer::Answer& answer : answers) {
    news.is_urgent = true;
    if (!answer.warning.empty()) news.warnings.push_back(std::move(answer.warning));
    if (answer.connection) dialed_.insert_or_assign(answer.rank, std::move(*answer.connection));
  }
  for (const Dialer::Answer& answer : answers) {
    watch.dialed(answer.rank, answer.tried ? std::optional(answer.reach) : std::nullopt, now_);
  }
  std::map<int, bool> gone;  // by rank: whether the network broke the connection
  for (auto& [rank, connection] : dialed_) {
    const auto lines = connection.receive();
    if (!lines) gone.emplace(rank, connection.broken_by_network());
    for (const std::string& line : lines.value_or(std::vector<std::string>())) {
      if (const auto message = message::parse(line)) watch.hear_dialed(*message);
    }
  }
  for (const auto& [rank, by_network] : gone) {
    dialed_.erase(rank);
    watch.lose_dialed(rank, by_network, now_);
  }
}

void WatchSockets::to_monitor(const message::Any& message) {
  if (link_) link_->send(message::to_line(message));
}

void WatchSockets::hang_up(int rank) {
  dialer_.hang_up(rank);
  const auto found = dialed_.find(rank);
  if (found == dialed_.end()) return;
  found->second.send(message::to_line(message::Visit{}));
  dialed_.erase(found);
}

void WatchSockets::report_to(int rank) {
  const auto found = dialed_.find(rank);
  if (found == dialed_.end()) return;
  link_ = std::move(found->second);
  dialed_.erase(found);
}

void WatchSockets::abandon_monitor() {
  if (link_) abandoned_.push_back(std::move(*link_));
  link_.reset();
}

void WatchSockets::leave(bool with_error) {
  std::vector<RankConnection> all = dialer_.take_identified();
  if (link_) all.push_back(std::move(*link_));
  link_.reset();
  for (auto& [rank, connection] : dialed_) all.push_back(std::move(connection));
  dialed_.clear();
  const LivenessTime start = LivenessClock::now();
  const auto wait_while = [&](const auto& any_is_open) {
    while (any_is_open() && LivenessClock::now() - start < kFarewell) std::this_thread::sleep_for(milliseconds(1));
  };
  for (RankConnection& one : all) one.send(message::to_line(message::Bye{.with_error = with_error}));
  wait_while([&] {
    for (RankConnection& one : all) one.flush();
    return std::any_of(all.begin(), all.end(), [](const RankConnection& one) { return one.has_unsent(); });
  });
  // If a connection is closed with unread input, TCP discards what it has sent and the other side has not read yet.
  for (RankConnection& one : all) one.end_sending();
  wait_while([&] {
    std::erase_if(all, [](RankConnection& one) { return !one.receive(); });
    return !all.empty();
  });
}

}  // namespace mpzero
