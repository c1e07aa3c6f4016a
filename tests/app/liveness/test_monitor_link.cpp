#include <fmt/format.h>

#include <thread>

#include "app/liveness/monitor_link.hpp"
#include "tests/app/liveness/link/loopback_ranks.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using State = RankRecord::State;

constexpr double kSilentAfter = 10;
const LivenessTime kStart = kNow;

// Rank 1 reports to rank 0 of two.
struct Pair {
  explicit Pair(double silent_after = kSilentAfter)
      : monitors_roster(ranks.roster(0)),
        reporters_roster(ranks.roster(1)),
        peers(std::in_place, ranks.take_listener(0), monitors_roster.credentials()) {
    auto connection = LoopbackRanks::connect(reporters_roster, 0);
    REQUIRE(connection);
    identify(*connection, *peers);
    link.emplace(reporters_roster, std::move(connection), silent_after, kStart);
  }
  // What the link receives until something has arrived.
  MonitorLink::News heard() {
    MonitorLink::News news;
    wait_until([&] {
      news = link->hear(kStart);
      return news.asked || news.end || news.loss || link->descriptor() < 0;
    });
    return news;
  }

  LoopbackRanks ranks{2};
  RankRoster monitors_roster;
  RankRoster reporters_roster;
  std::optional<RankPeers> peers;
  std::optional<MonitorLink> link;
};

std::string error_in(const RankPeers::News& news) {
  REQUIRE(news.message);
  const auto* failed = std::get_if<message::Failed>(&*news.message);
  return failed == nullptr ? "" : failed->error;
}

}  // namespace

TEST_CASE("Messages of the monitor are received") {
  Pair pair;
  CHECK(pair.link->descriptor() >= 0);
  pair.peers->broadcast(message::Pulse{});
  pair.peers->broadcast(message::Ask{});
  const MonitorLink::News asked = pair.heard();
  CHECK((asked.asked && !asked.end && !asked.loss));
  pair.peers->broadcast(message::End{.exit_code = 75, .kill = {1, 0}});
  const MonitorLink::News ended = pair.heard();
  REQUIRE(ended.end);
  CHECK(ended.end->exit_code == 75);
  CHECK(ended.end->kill == std::vector<int>{1, 0});
}

TEST_CASE("An error is sent once, after the status") {
  Pair pair;
  RankReport report{.status = in_step(4), .error = "the disk is full", .culprits = {}};
  pair.link->report(report);
  CHECK(pair.link->has_reported_error());
  report.status.step = 5;
  pair.link->report(report);
  const auto news = hear(*pair.peers, 3);
  REQUIRE(news.size() == 3);
  CHECK(std::get<message::Status>(*news[0].message).status.step == 4);
  CHECK(error_in(news[1]) == "the disk is full");
  CHECK(std::get<message::Status>(*news[2].message).status.step == 5);
}

TEST_CASE("A monitor that dies is lost, and one that leaves is not") {
  Pair pair;
  SECTION("it dies") {
    pair.peers.reset();
    const MonitorLink::News news = pair.heard();
    REQUIRE(news.loss);
    CHECK(*news.loss == MonitorLink::Loss::kLost);
  }
  SECTION("it leaves") {
    pair.peers->broadcast(message::Bye{});
    CHECK_FALSE(pair.heard().loss);
    // The link has closed its side, which the monitor waits for.
    const auto news = hear(*pair.peers, 1);
    CHECK((news.front().rank == 1 && !news.front().message));
    pair.peers.reset();
    CHECK_FALSE(pair.link->hear(kStart + seconds(1000)).loss);
  }
  CHECK(pair.link->descriptor() < 0);
  // No monitor receives it.
  pair.link->report({.status = {}, .error = "an error", .culprits = {}});
  CHECK_FALSE(pair.link->has_reported_error());
  pair.link->leave(/*with_error=*/false);
}

TEST_CASE("A monitor without a message for the allowed time is silent") {
  Pair pair;
  CHECK_FALSE(pair.link->hear(kStart + seconds(9)).loss);
  SECTION("it is gone") {
    const auto loss = pair.link->hear(kStart + seconds(11)).loss;
    REQUIRE(loss);
    CHECK(*loss == MonitorLink::Loss::kSilent);
    CHECK(pair.link->descriptor() < 0);
  }
  SECTION("a pulse is a message") {
    pair.peers->broadcast(message::Pulse{});
    wait_readable(pair.link->descriptor());
    CHECK_FALSE(pair.link->hear(kStart + seconds(9)).loss);
    CHECK_FALSE(pair.link->hear(kStart + seconds(18)).loss);
    CHECK(pair.link->hear(kStart + seconds(20)).loss);
  }
  SECTION("this process itself has slept") {
    pair.link->slept(kStart + seconds(500));
    CHECK_FALSE(pair.link->hear(kStart + seconds(505)).loss);
    CHECK(pair.link->hear(kStart + seconds(511)).loss);
  }
}

TEST_CASE("Without a limit silence is not a failure") {
  Pair pair(/*silent_after=*/0);
  CHECK_FALSE(pair.link->hear(kStart + std::chrono::hours(100)).loss);
}

TEST_CASE("A leaving rank's last message arrives before its connection closes, even with unread input") {
  Pair pair;
  for (int i = 0; i < 1000; ++i) pair.peers->broadcast(message::Pulse{});
  pair.link->report({.status = in_step(9), .error = std::nullopt, .culprits = {}});
  std::thread leaving([&] {
    pair.link->leave(/*with_error=*/true);
    pair.link.reset();
  });
  std::vector<RankPeers::News> news;
  wait_until([&] {
    for (RankPeers::News& one : pair.peers->hear(kNow)) news.push_back(std::move(one));
    return pair.peers->num_connected() == 0;
  });
  leaving.join();
  for (RankPeers::News& one : pair.peers->hear(kNow)) news.push_back(std::move(one));
  REQUIRE(news.size() == 2);
  REQUIRE((news[0].message && news[1].message));
  CHECK(std::get<message::Status>(*news[0].message).status.step == 9);
  CHECK(std::get<message::Bye>(*news[1].message).with_error);
}

TEST_CASE("A monitor that does not respond delays no leaving rank, and receives its message later") {
  Pair pair;
  for (int i = 0; i < 1000; ++i) pair.peers->broadcast(message::Pulse{});
  wait_readable(pair.link->descriptor());
  // More than fits into the monitor's receive buffer, so that the bye still waits on this side.
  pair.link->send(message::Failed{std::string(600'000, 'x'), {}});
  pair.link->leave(/*with_error=*/false);
  pair.link.reset();
  const auto news = hear(*pair.peers, 2);
  REQUIRE((news.front().message && news.back().message));
  CHECK(std::holds_alternative<message::Bye>(*news.back().message));
}

TEST_CASE("Ranks connect to the first present rank, and that rank finds that it is itself") {
  LoopbackRanks ranks(4);
  // Ranks 0 and 1 are gone.
  ranks.end(0);
  ranks.end(1);
  const RankRoster of_two = ranks.roster(2);
  const RankRoster of_three = ranks.roster(3);
  RankPeers peers(ranks.take_listener(2), of_two.credentials());

  MonitorLink three(of_three, std::nullopt, kSilentAfter, kStart);
  RankMonitor known_to_three(of_three.ranks, kSilentAfter, kStart);
  REQUIRE(three.turn_to_next(known_to_three, MonitorLink::Loss::kLost, kStart));
  CHECK(known_to_three.records()[0].state == State::kLost);
  CHECK(known_to_three.records()[1].state == State::kSilent);
  CHECK(known_to_three.records()[2].state == State::kAnswers);
  three.report({.status = in_step(6), .error = "an error", .culprits = {}});
  // Rank 2 receives it before it has noticed anything itself.
  const auto news = hear(peers, 2, [&] { CHECK_FALSE(three.hear(kStart).loss); });
  CHECK((news[0].rank == 3 && news[1].rank == 3));
  CHECK(error_in(news[1]) == "an error");

  MonitorLink two(of_two, std::nullopt, kSilentAfter, kStart);
  RankMonitor known_to_two(of_two.ranks, kSilentAfter, kStart);
  CHECK_FALSE(two.turn_to_next(known_to_two, MonitorLink::Loss::kSilent, kStart));
  CHECK(two.descriptor() < 0);
  CHECK(known_to_two.silent_ranks() == std::vector<int>{0, 1});
}

TEST_CASE("An error is sent again to a new monitor, which is abandoned if it does not end the run in time") {
  LoopbackRanks ranks(3);
  const RankRoster of_two = ranks.roster(2);
  MonitorLink link(of_two, LoopbackRanks::connect(of_two, 0), kSilentAfter, kStart);
  RankMonitor records(of_two.ranks, kSilentAfter, kStart);
  link.report({.status = {}, .error = "an error", .culprits = {}});
  CHECK(link.has_reported_error());
  REQUIRE(link.turn_to_next(records, MonitorLink::Loss::kLost, kStart));
  CHECK_FALSE(link.has_reported_error());

  const RankRoster of_one = ranks.roster(1);
  RankPeers peers(ranks.take_listener(1), of_one.credentials());
  wait_until([&] {
    CHECK_FALSE(link.hear(kStart).loss);
    return peers.hear(kNow).empty() && peers.num_connected() == 1;
  });
  peers.broadcast(message::Pulse{});
  wait_readable(link.descriptor());
  CHECK_FALSE(link.hear(kStart + seconds(9)).loss);
  const auto loss = link.hear(kStart + seconds(11)).loss;
  REQUIRE(loss);
  CHECK_FALSE(link.turn_to_next(records, *loss, kStart + seconds(11)));
}

TEST_CASE("A connection that ends before the monitor is identified is opened again, and reports are sent again") {
  LoopbackRanks ranks(2);
  Listener listener = ranks.take_listener(0);
  const RankRoster monitors = ranks.roster(0);
  const RankRoster reporters = ranks.roster(1);
  MonitorLink link(reporters, LoopbackRanks::connect(reporters, 0), kSilentAfter, kStart);
  const RankReport report{.status = in_step(3), .error = "the disk is full", .culprits = {}};
  link.report(report);
  // As when too many connect.
  for (int i = 0; i < 3; ++i) {
    wait_readable(listener.descriptors().front());
    listener.accept();
    wait_readable(link.descriptor());
    const MonitorLink::News news = link.hear(kStart + milliseconds(200 * i));
    CHECK((!news.loss && news.warning.empty()));
    CHECK(link.descriptor() < 0);
    CHECK_FALSE(link.hear(kStart + milliseconds(200 * i + 99)).asked);
    CHECK(link.hear(kStart + milliseconds(200 * i + 100)).asked);
    CHECK_FALSE(link.has_reported_error());
  }
  RankPeers peers(std::move(listener), monitors.credentials());
  link.report(report);
  const auto news = hear(peers, 2, [&] { CHECK_FALSE(link.hear(kStart + seconds(1)).loss); });
  CHECK(std::get<message::Status>(*news[0].message).status.step == 3);
  CHECK(error_in(news[1]) == "the disk is full");
}

TEST_CASE("A monitor whose port closes before it is identified is lost") {
  LoopbackRanks ranks(2);
  const RankRoster reporters = ranks.roster(1);
  MonitorLink link(reporters, LoopbackRanks::connect(reporters, 0), kSilentAfter, kStart);
  ranks.end(0);
  wait_readable(link.descriptor());
  CHECK_FALSE(link.hear(kStart).loss);
  const auto loss = link.hear(kStart + seconds(1)).loss;
  REQUIRE(loss);
  CHECK(*loss == MonitorLink::Loss::kLost);
  CHECK_FALSE(link.hear(kStart + seconds(2)).loss);
}

TEST_CASE("A new monitor that accepts connections but never answers is abandoned after the time limit") {
  LoopbackRanks ranks(3);
  ranks.end(0);
  const RankRoster roster = ranks.roster(2);
  RankMonitor records(roster.ranks, kSilentAfter, kStart);
  MonitorLink link(roster, std::nullopt, /*silent_after=*/0, kStart);
  REQUIRE(link.turn_to_next(records, MonitorLink::Loss::kLost, kStart));
  CHECK_FALSE(link.hear(kStart + seconds(4)).loss);
  // The connection is opened again after 5 s.
  CHECK_FALSE(link.hear(kStart + seconds(5)).loss);
  CHECK(link.descriptor() < 0);
  CHECK_FALSE(link.hear(kStart + seconds(6)).loss);
  CHECK(link.descriptor() >= 0);
  const auto loss = link.hear(kStart + seconds(11)).loss;
  REQUIRE(loss);
  CHECK(*loss == MonitorLink::Loss::kSilent);
}

TEST_CASE("A process that answers in the monitor's place without the secret receives nothing and is reported once") {
  LoopbackRanks ranks(2);
  const RankRoster reporters = ranks.roster(1);
  Listener other({kLoopback});
  const std::string nonce(kHexDigits, '0');
  RankRoster misled = reporters;
  misled.ranks[0].port = other.port();
  MonitorLink link(misled, LoopbackRanks::connect(misled, 0), kSilentAfter, kStart);
  link.report({.status = in_step(3), .error = "a secret matter", .culprits = {}});
  std::string warnings;
  for (int i = 0; i < 2; ++i) {
    wait_readable(other.descriptors().front());
    LineConnection connection = other.accept().connection.value();
    connection.send("challenge " + nonce + " " + nonce);
    wait_readable(link.descriptor());
    const MonitorLink::News news = link.hear(kStart + seconds(i));
    CHECK_FALSE(news.loss);
    warnings += news.warning;
    std::optional<std::vector<std::string>> heard;
    std::vector<std::string> all;
    wait_until([&] {
      heard = connection.receive();
      if (heard) all.insert(all.end(), heard->begin(), heard->end());
      return !heard;
    });
    REQUIRE(all.size() == 1);
    CHECK_THAT(all.front(), Catch::StartsWith("hello 1 "));
    link.hear(kStart + seconds(i) + milliseconds(500));
  }
  CHECK(warnings ==
        fmt::format("has closed its connection to rank 0 on {} (port {}), because it does not know this run's "
                    "secret",
                    misled.identity(0).host, other.port()));
}

}  // namespace mpzero
