#include "app/liveness/rank_peers.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "app/liveness/clock.hpp"

namespace mpzero {

RankPeers::RankPeers(Listener listener, const RankRoster& roster) : roster_(roster), listener_(std::move(listener)) {}

std::vector<int> RankPeers::descriptors() const {
  std::vector<int> descriptors = {listener_.descriptor()};
  for (const Peer& peer : peers_) descriptors.push_back(peer.connection.descriptor());
  return descriptors;
}

std::vector<RankPeers::News> RankPeers::hear() {
  while (std::optional<LineConnection> connection = listener_.accept()) {
    peers_.push_back({.connection = std::move(*connection), .rank = std::nullopt});
  }
  std::vector<News> news;
  std::vector<Peer> staying;
  for (Peer& peer : peers_) {
    if (hear(peer, news)) staying.push_back(std::move(peer));
  }
  peers_ = std::move(staying);
  return news;
}

bool RankPeers::hear(Peer& peer, std::vector<News>& news) {
  peer.connection.flush();
  const auto lines = peer.connection.receive();
  if (!lines) {
    if (peer.rank) news.push_back({.rank = *peer.rank, .words = std::nullopt});
    return false;
  }
  return std::all_of(lines->begin(), lines->end(), [&](const std::string& line) { return take(peer, line, news); });
}

bool RankPeers::take(Peer& peer, const std::string& line, std::vector<News>& news) {
  std::optional<message::Any> words = message::parse(line);
  if (!peer.rank) {
    const auto* hello = words ? std::get_if<message::Hello>(&*words) : nullptr;
    if (hello == nullptr || !belongs(*hello)) return false;
    peer.rank = hello->rank;
    introduced_.insert(hello->rank);
    return true;
  }
  if (!words) return true;
  const bool stays = !std::holds_alternative<message::Bye>(*words);
  news.push_back({.rank = *peer.rank, .words = std::move(words)});
  return stays;
}

bool RankPeers::belongs(const message::Hello& hello) const {
  return hello.token == roster_.token && hello.rank >= 0 && hello.rank < roster_.size() && hello.rank != roster_.own;
}

void RankPeers::broadcast(const message::Any& words) {
  const std::string line = message::to_line(words);
  for (Peer& peer : peers_) {
    if (peer.rank) peer.connection.send(line);
  }
}

void RankPeers::finish_sending(std::chrono::milliseconds limit) {
  const auto all_sent = [&] {
    return std::none_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.connection.has_unsent(); });
  };
  for (const LivenessTime start = LivenessClock::now(); !all_sent() && LivenessClock::now() - start < limit;) {
    for (Peer& peer : peers_) peer.connection.flush();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

int RankPeers::num_connected() const {
  return static_cast<int>(
      std::count_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.rank.has_value(); }));
}

}  // namespace mpzero
