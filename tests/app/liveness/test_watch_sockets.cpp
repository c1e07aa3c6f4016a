#include <sys/epoll.h>

#include <array>
#include <memory>

#include "app/liveness/watch_sockets.hpp"
#include "base/error.hpp"
#include "tests/app/liveness/link/loopback_ranks.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kSilentAfter = 60;

// Ranks of one process, connected over the loopback interface. Time passes only in steps.
class WatchedRanks {
 public:
  // On machines of `per_node` ranks.
  WatchedRanks(int count, int per_node) : ranks_(count) {
    for (int rank = 0; rank < count; ++rank) {
      rosters_.push_back(std::make_unique<RankRoster>(ranks_.roster(rank)));
      for (RankIdentity& identity : rosters_.back()->ranks) {
        identity.machine = "node" + std::to_string(identity.rank / per_node);
        identity.host = identity.machine;
        identity.addresses = {kLoopback};
      }
    }
    for (int rank = 0; rank < count; ++rank) {
      std::optional<RankConnection> link;
      if (rank > 0) link = LoopbackRanks::connect(*rosters_[static_cast<size_t>(rank)], 0);
      all_.push_back(std::make_unique<One>(*rosters_[static_cast<size_t>(rank)], ranks_.take_listener(rank),
                                           std::move(link), now_));
    }
    settle([&] { return peers(0).num_connected() == count - 1; });
  }

  RankWatch& watch(int rank) { return all_[static_cast<size_t>(rank)]->watch; }
  WatchSockets& sockets(int rank) { return all_[static_cast<size_t>(rank)]->sockets; }
  RankPeers& peers(int rank) { return sockets(rank).peers(); }
  // Its process ends.
  void end(int rank) { all_[static_cast<size_t>(rank)].reset(); }
  void stop(int rank) { all_[static_cast<size_t>(rank)]->stopped = true; }
  bool runs(int rank) { return all_[static_cast<size_t>(rank)] && !all_[static_cast<size_t>(rank)]->stopped; }

  // All running ranks take turns at the present time until the condition holds.
  void settle(const std::function<bool()>& condition) {
    wait_until([&] {
      for (int rank = 0; rank < static_cast<int>(all_.size()); ++rank) {
        if (runs(rank)) turn(*all_[static_cast<size_t>(rank)]);
      }
      return condition();
    });
  }
  // Time passes in steps of a second. What the ranks send in one step arrives in it.
  void pass(int count) {
    for (int i = 0; i < count; ++i) {
      now_ += seconds(1);
      int rounds = 0;
      settle([&] { return ++rounds > 3; });
    }
  }

 private:
  struct One {
    One(const RankRoster& roster, Listener listener, std::optional<RankConnection> link, LivenessTime now)
        : sockets(roster, RankPeers(std::move(listener), roster.credentials()), std::move(link)),
          watch(roster.ranks, roster.own, kSilentAfter, sockets, now) {}
    WatchSockets sockets;
    RankWatch watch;
    bool stopped = false;
  };
  void turn(One& one) const {
    if (one.watch.ended()) return;
    one.sockets.hear(one.watch, now_);
    if (now_ >= one.watch.next_beat()) {
      one.watch.beat({.status = in_step(7), .error = std::nullopt, .culprits = {}}, now_);
    }
    one.watch.look(now_);
    if (one.watch.ended()) one.sockets.to_reporters(one.watch.ended()->end);
  }

  LoopbackRanks ranks_;
  std::vector<std::unique_ptr<RankRoster>> rosters_;
  std::vector<std::unique_ptr<One>> all_;
  LivenessTime now_ = kNow;
};

}  // namespace

TEST_CASE("Heartbeats keep all ranks content") {
  WatchedRanks ranks(6, 2);
  ranks.pass(130);
  for (int rank = 0; rank < 6; ++rank) CHECK_FALSE(ranks.watch(rank).ended());
  CHECK(ranks.watch(0).records().records()[5].status.step == 7);
}

TEST_CASE("After the death of rank 0 the next one takes over, names it and ends all") {
  const int count = GENERATE(3, 60);
  WatchedRanks ranks(count, 2);
  ranks.end(0);
  ranks.settle([&] { return ranks.watch(1).monitors() && ranks.peers(1).num_connected() == count - 2; });
  ranks.pass(2);
  ranks.settle([&] {
    for (int rank = 1; rank < count; ++rank) {
      if (!ranks.watch(rank).ended()) return false;
    }
    return true;
  });
  for (int rank = 1; rank < count; ++rank) {
    CHECK(ranks.watch(rank).ended()->end.exit_code == kFailureExitCode);
    CHECK(ranks.watch(rank).ended()->verdict.has_value() == (rank == 1));
  }
  CHECK(ranks.watch(1).ended()->verdict->ranks == std::vector<int>{0});
}

TEST_CASE("A stopped rank is named, also the one that monitors") {
  const int stopped = GENERATE(0, 3);
  WatchedRanks ranks(6, 2);
  ranks.pass(4);
  ranks.stop(stopped);
  const int judge = stopped == 0 ? 1 : 0;
  ranks.pass(75);
  REQUIRE(ranks.watch(judge).ended());
  REQUIRE(ranks.watch(judge).ended()->verdict);
  CHECK(ranks.watch(judge).ended()->verdict->ranks == std::vector<int>{stopped});
  CHECK(ranks.watch(judge).ended()->end.kill == std::vector<int>{stopped});
}

TEST_CASE("A stopped monitor that runs again learns that it was abandoned, and blames no other") {
  WatchedRanks ranks(4, 2);
  ranks.pass(4);
  ranks.stop(0);
  ranks.pass(75);
  REQUIRE(ranks.watch(1).ended());
  // As its thread does after its own sleep.
  RankWatch& watch = ranks.watch(0);
  const LivenessTime later = kNow + seconds(80);
  watch.slept(seconds(75), later);
  wait_until([&] {
    ranks.sockets(0).hear(watch, later);
    return watch.records().silent_ranks() == std::vector<int>{1, 2, 3};
  });
  for (int second = 0; second < 20 && !watch.ended(); ++second) {
    watch.beat({.status = in_step(7), .error = std::nullopt, .culprits = {}}, later + seconds(second));
    ranks.sockets(0).hear(watch, later + seconds(second));
    watch.look(later + seconds(second));
  }
  REQUIRE(watch.ended());
  REQUIRE(watch.ended()->verdict);
  CHECK(watch.ended()->verdict->ranks == std::vector<int>{0});
  CHECK(watch.ended()->verdict->foundation == 0);
}

TEST_CASE("A leaving rank's last message arrives before its connection closes, even with unread input") {
  WatchedRanks ranks(2, 2);
  for (int i = 0; i < 1000; ++i) ranks.sockets(0).to_reporters(message::Pulse{});
  std::thread leaving([&] { ranks.sockets(1).leave(/*with_error=*/false); });
  wait_until([&] {
    ranks.sockets(0).hear(ranks.watch(0), kNow);
    return ranks.watch(0).records().all_ended_but(0);
  });
  leaving.join();
  CHECK(ranks.watch(0).records().records()[1].state == RankRecord::State::kLeft);
}

TEST_CASE("A rank that leaves while it searches for a monitor does not look lost to the ranks that it has dialed") {
  // With 0 rounds the dialer has the connection, later the rank's own map has it.
  const int more_rounds = GENERATE(0, 10);
  WatchedRanks ranks(4, 1);
  ranks.stop(1);
  ranks.end(0);
  // Rank 3 may report to rank 2 only once rank 1 is known not to answer.
  ranks.settle([&] { return ranks.peers(2).num_connected() == 1; });
  int round = 0;
  ranks.settle([&] { return ++round > more_rounds; });
  std::thread leaving([&] {
    ranks.sockets(3).leave(/*with_error=*/false);
    ranks.end(3);
  });
  wait_until([&] {
    ranks.sockets(2).hear(ranks.watch(2), kNow);
    return ranks.watch(2).records().all_ended_but(2) || ranks.peers(2).num_connected() == 0;
  });
  leaving.join();
  ranks.sockets(2).hear(ranks.watch(2), kNow);
  CHECK(ranks.watch(2).records().records()[3].state == RankRecord::State::kLeft);
}

TEST_CASE("A visit that ends with unread input does not look like the end of a rank") {
  WatchedRanks ranks(3, 1);
  ranks.sockets(2).dial(1, seconds(5));
  ranks.settle([&] { return ranks.peers(1).num_connected() == 1; });
  for (int i = 0; i < 1000; ++i) ranks.sockets(1).to_reporters(message::Pulse{});
  ranks.sockets(2).hang_up(1);
  ranks.settle([&] { return ranks.peers(1).num_connected() == 0; });
  CHECK(ranks.watch(1).records().records()[2].state == RankRecord::State::kAnswers);
}

TEST_CASE("Of two candidates that answer in one turn the first is reported to, and the other is hung up") {
  LoopbackRanks ranks(4);
  const auto of = [&](int rank) {
    RankRoster roster = ranks.roster(rank);
    for (RankIdentity& identity : roster.ranks) {
      identity.machine = identity.host = "node" + std::to_string(identity.rank);
      identity.addresses = {kLoopback};
    }
    return roster;
  };
  const auto peers_of = [&](int rank) { return RankPeers(ranks.take_listener(rank), of(rank).credentials()); };
  const RankRoster own = of(3);
  std::optional<RankPeers> monitor = peers_of(0);
  std::array<RankPeers, 2> candidates = {peers_of(1), peers_of(2)};
  WatchSockets sockets(own, peers_of(3), LoopbackRanks::connect(own, 0));
  RankWatch watch(own.ranks, own.own, kSilentAfter, sockets, kNow);
  wait_until([&] {
    monitor->hear(kNow);
    sockets.hear(watch, kNow);
    return monitor->num_connected() == 1;
  });
  monitor.reset();
  const auto both = [&](const auto& holds) { return holds(candidates[0]) && holds(candidates[1]); };
  wait_until([&] {
    sockets.hear(watch, kNow);
    return both([](RankPeers& one) { return one.hear(kNow).empty() && one.num_unidentified() == 1; });
  });
  // Each has challenged this rank, and waits for its proof.
  wait_until([&] {
    sockets.hear(watch, kNow);
    return both([](const RankPeers& one) { return is_readable(one.descriptor()); });
  });
  wait_until([&] { return both([](RankPeers& one) { return one.hear(kNow).empty() && one.num_connected() == 1; }); });
  // Both have answered: the dialer has two connections to read.
  std::vector<pollfd> wanted;
  sockets.add_to(wanted);
  wait_until([&] {
    std::array<epoll_event, 4> ready{};
    return epoll_wait(wanted[1].fd, ready.data(), static_cast<int>(ready.size()), 0) == 2;
  });
  sockets.hear(watch, kNow);
  watch.beat({.status = in_step(7), .error = std::nullopt, .culprits = {}}, kNow);
  const auto heard = hear(candidates[0], 1);
  REQUIRE(heard.front().message);
  CHECK(std::holds_alternative<message::Status>(*heard.front().message));
  const auto visit = hear(candidates[1], 1);
  REQUIRE(visit.front().message);
  CHECK(std::holds_alternative<message::Visit>(*visit.front().message));
  CHECK(candidates[1].num_connected() == 0);
}

TEST_CASE("A request to stop reaches the monitor") {
  WatchedRanks ranks(2, 2);
  ranks.sockets(1).to_monitor(message::Stop{.exit_code = 75, .leaves_host = "EC2 takes it back"});
  std::vector<std::pair<int, message::Stop>> stops;
  wait_until([&] {
    stops = ranks.sockets(0).hear(ranks.watch(0), kNow).stops;
    return !stops.empty();
  });
  REQUIRE(stops.size() == 1);
  const auto& [rank, stop] = stops.front();
  CHECK(rank == 1);
  CHECK((stop.exit_code == 75 && stop.leaves_host == "EC2 takes it back"));
}

}  // namespace mpzero
