#include "app/liveness/link/rank_peers.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.hpp"

namespace mpzero {
namespace {

using std::chrono::milliseconds;

// In addition to one for each rank.
constexpr int kStrangers = 16;
constexpr int kAcceptedAtOnce = 256;
constexpr size_t kHeardAtOnce = 1024;
constexpr milliseconds kRest(10);
// For the case that no descriptor is free, not even to turn a connection away.
constexpr milliseconds kLongRest(100);

}  // namespace

RankPeers::RankPeers(Listener listener, const RankCredentials& credentials)
    : credentials_(credentials), listener_(std::move(listener)), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_ || !watch_listener()) throw_failure("epoll failed: {}", std::strerror(errno));
}

bool RankPeers::watch(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0 || errno == EEXIST;
}

bool RankPeers::watch_listener() {
  const std::vector<int> sockets = listener_.descriptors();
  return std::all_of(sockets.begin(), sockets.end(), [this](int socket) { return watch(socket); });
}

std::vector<RankPeers::News> RankPeers::hear(LivenessTime now) {
  take_in(now);
  return std::exchange(news_, {});
}

void RankPeers::take_in(LivenessTime now) {
  flush();
  end_rest(now);
  // Reads existing connections first: what arrives may identify them, so that they need not make room.
  if (hear_ready()) admit(now);
  drop_overdue(now);
}

void RankPeers::flush() {
  std::erase_if(unsent_, [this](int descriptor) {
    RankConnection& connection = peers_.at(descriptor).connection;
    connection.flush();
    return !connection.has_unsent();
  });
}

bool RankPeers::hear_ready() {
  std::array<epoll_event, kHeardAtOnce> events;
  bool has_visitor = false;
  // Each round reads what the connections have: another one is for those that did not fit.
  for (size_t heard = 0; heard <= peers_.size() + kHeardAtOnce; heard += events.size()) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const int descriptor = events[static_cast<size_t>(i)].data.fd;
      if (const auto peer = peers_.find(descriptor); peer != peers_.end()) {
        hear(peer);
      } else {
        has_visitor = true;
      }
    }
    if (count < static_cast<int>(events.size())) break;
  }
  return has_visitor;
}

void RankPeers::admit(LivenessTime now) {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    Listener::Visit visit = listener_.accept();
    switch (visit.outcome) {
      case Listener::Outcome::kNobody:
        return;
      case Listener::Outcome::kAccepted:
        take(std::move(visit), now);
        break;
      case Listener::Outcome::kTurnedAway:
        strangers_.turned_away(visit.from, "this process cannot open more files (see `ulimit -n`)");
        break;
      case Listener::Outcome::kFailed:
        return rest_until(now + kLongRest);
    }
  }
  rest_until(now + kRest);
}

void RankPeers::take(Listener::Visit visit, LivenessTime now) {
  const int descriptor = visit.connection->descriptor();
  Peer peer{.connection = RankConnection::from(std::move(*visit.connection), credentials_, now),
            .from = std::move(visit.from),
            .arrival = num_arrived_++};
  if (!watch(descriptor)) return strangers_.turned_away(peer.from, "this machine already watches too many connections");
  unidentified_.insert(descriptor);
  hear(peers_.emplace(descriptor, std::move(peer)).first);
  if (num_unidentified() > credentials_.world_size + kStrangers) make_room(descriptor);
}

void RankPeers::make_room(int new_peer) {
  std::map<int, int> claims;  // of each rank
  for (const auto& [descriptor, peer] : peers_) ++claims[peer.connection.rank()];
  // By state: no hello yet, challenged, identified.
  const auto order_of = [&](const Peers::value_type& one) {
    const RankConnection& connection = one.second.connection;
    const bool is_challenged = connection.state() == RankConnection::State::kChallenged;
    return std::tuple(one.first == new_peer, connection.state(), is_challenged && claims.at(connection.rank()) == 1,
                      one.second.arrival);
  };
  const auto first = std::min_element(peers_.begin(), peers_.end(), [&](const auto& one, const auto& other) {
    return order_of(one) < order_of(other);
  });
  // One of several connections of a rank, or a replay of its hello, which is reported if it stays.
  if (first->second.connection.state() == RankConnection::State::kChallenged) return erase(first);
  drop(first, Handshake::Refusal::kNoRoom);
}

void RankPeers::drop_overdue(LivenessTime now) {
  for (const int descriptor : std::vector<int>(unidentified_.begin(), unidentified_.end())) {
    const auto peer = peers_.find(descriptor);
    peer->second.connection.look_at_clock(now);
    if (peer->second.connection.state() == RankConnection::State::kClosed) drop(peer, Handshake::Refusal::kTooLate);
  }
}

void RankPeers::drop(Peers::iterator peer, Handshake::Refusal why) {
  strangers_.turned_away(peer->second.from, describe(why));
  erase(peer);
}

void RankPeers::erase(Peers::iterator peer) {
  const RankConnection& connection = peer->second.connection;
  if (connection.was_identified()) {
    const auto links = links_.find(connection.rank());
    if (--links->second.num_open == 0) {
      if (links->second.one_broke) news_.push_back({.rank = links->first, .message = std::nullopt});
      links_.erase(links);
    }
  }
  unidentified_.erase(peer->first);
  unsent_.erase(peer->first);
  peers_.erase(peer);
}

void RankPeers::rest_until(LivenessTime when) {
  rests_until_ = when;
  for (const int socket : listener_.descriptors()) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
}

void RankPeers::end_rest(LivenessTime now) {
  if (!rests_until_ || now < *rests_until_) return;
  rests_until_.reset();
  if (!watch_listener()) rest_until(now + kLongRest);
}

void RankPeers::hear(Peers::iterator peer) {
  RankConnection& connection = peer->second.connection;
  const auto lines = connection.receive();
  if (connection.was_identified() && unidentified_.erase(peer->first) > 0) {
    introduced_.insert(connection.rank());
    ++links_[connection.rank()].num_open;
    connection.send(message::to_line(message::Pulse{}));
  }
  if (connection.has_unsent()) unsent_.insert(peer->first);
  if (lines && !std::all_of(lines->begin(), lines->end(),
                            [&](const std::string& line) { return take(connection.rank(), line); })) {
    return erase(peer);
  }
  if (connection.state() != RankConnection::State::kClosed) return;
  if (connection.was_identified() && !connection.broken_by_network()) {
    links_.at(connection.rank()).one_broke = true;
  }
  if (connection.refusal() == Handshake::Refusal::kClosed) return erase(peer);
  drop(peer, connection.refusal());
}

bool RankPeers::take(int rank, const std::string& line) {
  std::optional<message::Any> message = message::parse(line);
  if (!message) return true;
  const bool leaves = std::holds_alternative<message::Bye>(*message);
  // It closes its other connections, too.
  if (leaves) links_.at(rank).one_broke = false;
  const bool stays = !leaves && !std::holds_alternative<message::Visit>(*message);
  news_.push_back({.rank = rank, .message = std::move(message)});
  return stays;
}

void RankPeers::broadcast(const message::Any& message) {
  const std::string line = message::to_line(message);
  for (auto& [descriptor, peer] : peers_) {
    if (!peer.connection.is_identified()) continue;
    peer.connection.send(line);
    if (peer.connection.has_unsent()) unsent_.insert(descriptor);
  }
}

void RankPeers::finish_sending(milliseconds limit) {
  for (const LivenessTime start = LivenessClock::now(); LivenessClock::now() - start < limit;) {
    flush();
    if (unsent_.empty()) return;
    std::this_thread::sleep_for(milliseconds(5));
  }
}

}  // namespace mpzero
