#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/liveness/link/control_channel.hpp"
#include "app/liveness/link/dialer.hpp"
#include "app/liveness/link/listener.hpp"
#include "app/liveness/link/rank_connection.hpp"
#include "app/liveness/link/rank_message.hpp"
#include "app/liveness/link/rank_peers.hpp"
#include "tests/catch.hpp"

namespace mpzero {

// The time at which tests take place, unless they advance it.
inline const LivenessTime kNow = LivenessClock::now();

inline constexpr HashBytes kSecret = {1, 2, 3, 250};
inline constexpr HashBytes kOtherSecret = {1, 2, 3, 251};

// A run's ranks in one process: each listens on the loopback interface.
class LoopbackRanks {
 public:
  explicit LoopbackRanks(int count) {
    for (int rank = 0; rank < count; ++rank) {
      listeners_.emplace_back(Listener({kLoopback}));
      RankIdentity identity = this_process(rank, listeners_.back()->port());
      identity.addresses.clear();
      identities_.push_back(identity);
    }
  }
  RankRoster roster(int own) const { return {.own = own, .ranks = identities_, .secret = kSecret}; }
  int port(int rank) const { return identities_.at(static_cast<size_t>(rank)).port; }
  Listener take_listener(int rank) { return *std::exchange(listeners_.at(static_cast<size_t>(rank)), std::nullopt); }
  // Nothing answers there any more.
  void end(int rank) { take_listener(rank); }

  static std::optional<RankConnection> connect(const RankRoster& from, int to) {
    auto line = connect_to(kLoopback, from.identity(to).port, std::chrono::milliseconds(5000));
    if (!line) return std::nullopt;
    return RankConnection::to(std::move(*line), from.credentials(), to, kNow);
  }
  // A connection that is not a rank's.
  LineConnection stranger(int rank) const {
    auto connection = connect_to(kLoopback, port(rank), std::chrono::milliseconds(5000));
    REQUIRE(connection);
    return std::move(*connection);
  }

 private:
  std::vector<std::optional<Listener>> listeners_;
  std::vector<RankIdentity> identities_;
};

inline RankStatus in_step(int64_t step) {
  RankStatus status;
  status.step = step;
  return status;
}

// Fails only if `condition` never becomes true.
inline void wait_until(const std::function<bool()>& condition) {
  const auto start = std::chrono::steady_clock::now();
  while (!condition()) {
    REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

inline bool is_readable(int descriptor, int milliseconds = 0) {
  pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
  return poll(&wanted, 1, milliseconds) == 1;
}

// Waits until there is something to read.
inline void wait_readable(int descriptor) { REQUIRE(is_readable(descriptor, 30'000)); }

// The next message on a connection; std::nullopt once the other side has closed it.
inline std::optional<message::Any> next_message(RankConnection& connection) {
  std::optional<std::vector<std::string>> lines;
  wait_until([&] {
    lines = connection.receive();
    return !lines || !lines->empty();
  });
  if (!lines) return std::nullopt;
  REQUIRE(lines->size() == 1);
  return message::parse(lines->front());
}

// What `peers` receive until that many news have arrived; `meanwhile` is called in between.
inline std::vector<RankPeers::News> hear(RankPeers& peers, size_t count, const std::function<void()>& meanwhile = {}) {
  std::vector<RankPeers::News> all;
  wait_until([&] {
    if (meanwhile) meanwhile();
    for (RankPeers::News& one : peers.hear(kNow)) all.push_back(std::move(one));
    return all.size() >= count;
  });
  return all;
}

// Waits until both sides are identified, and the connecting one knows it.
inline void identify(RankConnection& connection, RankPeers& peers) {
  const int expected = peers.num_connected() + 1;
  std::vector<std::string> received;
  wait_until([&] {
    CHECK(peers.hear(kNow).empty());
    const auto lines = connection.receive();
    REQUIRE(lines);
    received.insert(received.end(), lines->begin(), lines->end());
    return !received.empty();
  });
  CHECK(received == std::vector<std::string>{message::to_line(message::Pulse{})});
  CHECK(peers.num_connected() == expected);
}

}  // namespace mpzero
