#include <sys/socket.h>

#include <algorithm>

#include "app/liveness/link/rank_peers.hpp"
#include "tests/app/liveness/link/loopback_ranks.hpp"
#include "tests/app/liveness/link/no_descriptors.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

constexpr std::chrono::milliseconds kLong(30'000);

// Rank 0 of three, which the others report to.
struct Monitor {
  Monitor() : roster(ranks.roster(0)), peers(ranks.take_listener(0), roster.credentials()) {}

  RankConnection connect(int rank) {
    auto connection = LoopbackRanks::connect(ranks.roster(rank), 0);
    REQUIRE(connection);
    identify(*connection, peers);
    return std::move(*connection);
  }
  LineConnection stranger() const { return ranks.stranger(0); }
  void wait_closed(LineConnection& stranger, LivenessTime now = kNow) {
    wait_until([&] {
      CHECK(peers.hear(now).empty());
      return !stranger.receive();
    });
  }

  LoopbackRanks ranks{3};
  RankRoster roster;
  RankPeers peers;
};

constexpr int kMostUnidentified = 3 + 16;

}  // namespace

TEST_CASE("A peer that does not prove to be another rank of this run is ignored, and its connection is closed") {
  Monitor monitor;
  const RankCredentials one = monitor.ranks.roster(1).credentials();
  const RankCredentials others = {.own = 1, .world_size = 3, .secret = kOtherSecret};
  const auto hello = [](RankCredentials credentials, int own) {
    credentials.own = own;
    return Handshake::connecting(credentials, 0, kNow).hello();
  };
  const auto [message, why] =
      GENERATE_COPY(table<std::string, std::string>({{hello(others, 1), "does not know this run's secret"},
                                                     {hello(one, 3), "does not know this run's secret"},
                                                     {hello(one, -1), "does not know this run's secret"},
                                                     {hello(one, 0), "does not know this run's secret"},
                                                     {message::to_line(message::Bye{}), "does not speak the protocol"},
                                                     {"GET / HTTP/1.1", "does not speak the protocol"},
                                                     {"", "does not speak the protocol"},
                                                     {std::string(100'000, 'x'), "longer than 512 bytes"}}));
  LineConnection stranger = monitor.stranger();
  stranger.send(message);
  stranger.send(message::to_line(message::Failed{"heard from a stranger", {}}));
  monitor.wait_closed(stranger);
  CHECK(monitor.peers.num_introduced() == 0);
  CHECK(monitor.peers.num_connected() == 0);
  CHECK(monitor.peers.num_unidentified() == 0);
  const std::string warning = monitor.peers.take_warning(kNow);
  CHECK_THAT(warning, Catch::StartsWith("has closed a connection from 127.0.0.1:") && Catch::Contains(why));
  CHECK(monitor.peers.take_warning(kNow).empty());
}

TEST_CASE("A replayed handshake identifies no rank") {
  Monitor monitor;
  LineConnection rank = monitor.stranger();
  Handshake handshake = Handshake::connecting(monitor.ranks.roster(1).credentials(), 0, kNow);
  std::vector<std::string> said = {handshake.hello()};
  rank.send(said.front());
  wait_until([&] { return monitor.peers.hear(kNow).empty() && is_readable(rank.descriptor()); });
  said.push_back(handshake.take(rank.receive()->front()).value());
  rank.send(said.back());
  LineSeal seal(handshake.session_key(Handshake::Role::kConnects));
  said.push_back(seal.close(message::to_line(message::Bye{.with_error = true})));
  rank.send(said.back());
  REQUIRE(hear(monitor.peers, 1).front().rank == 1);

  LineConnection stranger = monitor.stranger();
  for (const std::string& line : said) stranger.send(line);
  wait_until([&] {
    CHECK(monitor.peers.hear(kNow).empty());
    return !stranger.receive();
  });
  CHECK(monitor.peers.num_connected() == 0);
  CHECK_THAT(monitor.peers.take_warning(kNow), Catch::Contains("does not know this run's secret"));
}

TEST_CASE("Only peers that do not identify themselves within 5 s are dropped") {
  Monitor monitor;
  RankConnection one = monitor.connect(1);
  LineConnection silent = monitor.stranger();
  LineConnection half_open = monitor.stranger();
  REQUIRE(send(half_open.descriptor(), "hello 1 ", 8, 0) == 8);
  LineConnection challenged = monitor.stranger();
  challenged.send(Handshake::connecting(monitor.ranks.roster(2).credentials(), 0, kNow).hello());
  wait_readable(monitor.peers.descriptor());
  wait_until([&] { return monitor.peers.hear(kNow).empty() && monitor.peers.num_unidentified() == 3; });
  wait_readable(challenged.descriptor());
  CHECK_FALSE(challenged.receive()->empty());
  CHECK(monitor.peers.hear(kNow + kHandshakeLimit - std::chrono::milliseconds(1)).empty());
  CHECK(monitor.peers.num_unidentified() == 3);
  CHECK(monitor.peers.hear(kNow + kHandshakeLimit).empty());
  CHECK(monitor.peers.num_unidentified() == 0);
  for (LineConnection* one : {&silent, &half_open, &challenged}) {
    wait_until([&] { return !one->receive(); });
  }
  CHECK(monitor.peers.num_connected() == 1);
  CHECK_THAT(monitor.peers.take_warning(kNow),
             Catch::Contains(" and 2 more") && Catch::Contains("did not prove within 5 s"));
  one.send(message::to_line(message::Pulse{}));
  CHECK(hear(monitor.peers, 1).front().rank == 1);
}

TEST_CASE("Of a flood only world_size + 16 connections wait, the latest ones; a rank still gets in") {
  Monitor monitor;
  std::vector<LineConnection> flood;
  const auto pour = [&](int count) {
    for (int i = 0; i < count; ++i) {
      flood.push_back(monitor.stranger());
      CHECK(monitor.peers.hear(kNow).empty());
      CHECK(monitor.peers.num_unidentified() <= kMostUnidentified);
    }
  };
  pour(300);
  wait_until([&] { return monitor.peers.hear(kNow).empty() && monitor.peers.num_unidentified() == kMostUnidentified; });
  CHECK_FALSE(flood.front().receive());
  CHECK(flood.back().receive());
  RankConnection one = LoopbackRanks::connect(monitor.ranks.roster(1), 0).value();
  pour(100);
  // It was challenged before any of them came, and makes room for none.
  wait_until([&] {
    flood.push_back(monitor.stranger());
    REQUIRE(one.receive());
    CHECK(monitor.peers.hear(kNow).empty());
    return monitor.peers.num_connected() == 1;
  });
  CHECK(monitor.peers.num_unidentified() <= kMostUnidentified);
  CHECK(one.is_identified());
  CHECK_THAT(monitor.peers.take_warning(kNow), Catch::Contains("too many others were waiting"));
}

TEST_CASE("Replayed hellos of a rank make room for it too") {
  Monitor monitor;
  const std::string hello = Handshake::connecting(monitor.ranks.roster(1).credentials(), 0, kNow).hello();
  std::vector<LineConnection> flood;
  for (int i = 0; i < 100; ++i) {
    flood.push_back(monitor.stranger());
    flood.back().send(hello);
    CHECK(monitor.peers.hear(kNow).empty());
  }
  RankConnection one = monitor.connect(1);
  CHECK(monitor.peers.num_unidentified() <= kMostUnidentified);
}

TEST_CASE("If only replays wait, a rank whose hello comes later than its connection gets in") {
  Monitor monitor;
  const auto hello_of = [&](int rank) {
    return Handshake::connecting(monitor.ranks.roster(rank).credentials(), 0, kNow).hello();
  };
  // A rank that is about to prove itself, and that no other connection claims to be, stays although it came first.
  LineConnection two = monitor.stranger();
  two.send(hello_of(2));
  const std::string replay = hello_of(1);
  std::vector<LineConnection> flood;
  while (flood.size() + 1 < kMostUnidentified) {
    flood.push_back(monitor.stranger());
    flood.back().send(replay);
  }
  wait_until([&] {
    CHECK(monitor.peers.hear(kNow).empty());
    return std::all_of(flood.begin(), flood.end(), [](const auto& one) { return is_readable(one.descriptor()); });
  });
  REQUIRE(monitor.peers.num_unidentified() == kMostUnidentified);

  LineConnection rank = monitor.stranger();
  Handshake handshake = Handshake::connecting(monitor.ranks.roster(1).credentials(), 0, kNow);
  wait_readable(monitor.peers.descriptor());
  CHECK(monitor.peers.hear(kNow).empty());
  CHECK(monitor.peers.num_unidentified() == kMostUnidentified);
  // A rank may have several connections while it looks for the address at which this one answers.
  CHECK(monitor.peers.take_warning(kNow).empty());
  const LivenessTime later = kNow + kHandshakeLimit - std::chrono::milliseconds(1);
  CHECK(monitor.peers.hear(later).empty());
  rank.send(handshake.hello());
  wait_until([&] { return monitor.peers.hear(later).empty() && is_readable(rank.descriptor()); });
  const auto challenge = rank.receive();
  REQUIRE(challenge);
  rank.send(handshake.take(challenge->front()).value());
  wait_until([&] { return monitor.peers.hear(later).empty() && monitor.peers.num_connected() == 1; });
  // The oldest replay has made room.
  CHECK(flood.front().receive()->size() == 1);
  wait_until([&] { return !flood.front().receive(); });
  for (LineConnection* one : {&two, &flood[1], &flood.back()}) {
    CHECK(one->receive());
    CHECK(one->receive());
  }
}

TEST_CASE("After many connections the next ones wait for a moment, so that a flood does not occupy a core") {
  Monitor monitor;
  std::vector<LineConnection> flood;
  for (int i = 0; i < 300; ++i) flood.push_back(monitor.stranger());
  wait_until([&] { return monitor.peers.hear(kNow).empty() && monitor.peers.rests_until().has_value(); });
  while (is_readable(monitor.peers.descriptor())) CHECK(monitor.peers.hear(kNow).empty());
  flood.push_back(monitor.stranger());
  CHECK(monitor.peers.hear(kNow).empty());
  CHECK_FALSE(is_readable(monitor.peers.descriptor()));
  const LivenessTime rested = *monitor.peers.rests_until();
  CHECK(rested > kNow);
  CHECK(monitor.peers.hear(rested).empty());
  CHECK_FALSE(monitor.peers.rests_until());
  monitor.wait_closed(flood[270], rested + kHandshakeLimit);
}

TEST_CASE("Without a free descriptor strangers are turned away, and a rank gets in once one is free again") {
  Monitor monitor;
  RankConnection one = monitor.connect(1);
  LineConnection stranger = monitor.stranger();
  RankConnection two = LoopbackRanks::connect(monitor.ranks.roster(2), 0).value();
  {
    const NoDescriptors none;
    // Nothing spins: what arrived was removed, and nothing is left to be read.
    wait_until([&] { return monitor.peers.hear(kNow).empty() && !is_readable(monitor.peers.descriptor(), 50); });
    CHECK(monitor.peers.num_unidentified() == 0);
    one.send(message::to_line(message::Pulse{}));
    CHECK(hear(monitor.peers, 1).front().rank == 1);
  }
  wait_until([&] { return !stranger.receive(); });
  wait_until([&] { return !two.receive(); });
  CHECK_THAT(monitor.peers.take_warning(kNow), Catch::Contains("cannot open more files"));
  two = monitor.connect(2);
  CHECK(two.is_identified());
}

TEST_CASE("Without even the spare descriptor connections wait, and nothing spins") {
  Monitor monitor;
  RankConnection one = LoopbackRanks::connect(monitor.ranks.roster(1), 0).value();
  wait_readable(monitor.peers.descriptor());
  std::optional<LivenessTime> rested;
  {
    const NoDescriptors none(/*and_lower=*/true);
    CHECK(monitor.peers.hear(kNow).empty());
    rested = monitor.peers.rests_until();
    REQUIRE(rested);
    CHECK_FALSE(is_readable(monitor.peers.descriptor()));
    CHECK(monitor.peers.hear(*rested).empty());
    CHECK(monitor.peers.rests_until() > rested);
    rested = monitor.peers.rests_until();
  }
  wait_until([&] {
    CHECK(monitor.peers.hear(*rested).empty());
    REQUIRE(one.receive());
    return monitor.peers.num_connected() == 1;
  });
}

TEST_CASE("Each rank's messages arrive in order, and lines that no rank sends are ignored") {
  Monitor monitor;
  RankConnection one = monitor.connect(1);
  RankConnection two = monitor.connect(2);
  one.send(message::to_line(message::Status{in_step(1)}));
  one.send("noise");
  one.send(R"({"t":"hello","rank":2})");
  one.send(message::to_line(message::Status{in_step(2)}));
  two.send(message::to_line(message::Failed{"an error", {}}));
  const auto news = hear(monitor.peers, 3);
  REQUIRE(news.size() == 3);
  std::vector<int64_t> steps;
  for (const RankPeers::News& each : news) {
    REQUIRE(each.message);
    if (const auto* status = std::get_if<message::Status>(&*each.message)) {
      CHECK(each.rank == 1);
      steps.push_back(status->status.step);
    } else {
      CHECK(each.rank == 2);
      CHECK(std::get<message::Failed>(*each.message).error == "an error");
    }
  }
  CHECK(steps == std::vector<int64_t>{1, 2});
}

TEST_CASE("A connection that breaks is the loss of its rank, once") {
  Monitor monitor;
  std::optional<RankConnection> one = monitor.connect(1);
  one->send(message::to_line(message::Status{in_step(1)}));
  one.reset();
  const auto news = hear(monitor.peers, 2);
  REQUIRE(news.size() == 2);
  CHECK(news[0].message);
  CHECK((news[1].rank == 1 && !news[1].message));
  CHECK(monitor.peers.num_introduced() == 1);
  CHECK(monitor.peers.num_connected() == 0);
  CHECK(monitor.peers.hear(kNow).empty());
}

TEST_CASE("A rank with several connections is lost when the last of them breaks") {
  Monitor monitor;
  std::optional<RankConnection> one = monitor.connect(1);
  std::optional<RankConnection> other = monitor.connect(1);
  REQUIRE(monitor.peers.num_connected() == 2);
  one.reset();
  wait_until([&] {
    CHECK(monitor.peers.hear(kNow).empty());
    return monitor.peers.num_connected() == 1;
  });
  other->send(message::to_line(message::Pulse{}));
  CHECK(hear(monitor.peers, 1).front().message);
  other.reset();
  const auto news = hear(monitor.peers, 1);
  REQUIRE(news.size() == 1);
  CHECK((news.front().rank == 1 && !news.front().message));
  CHECK(monitor.peers.hear(kNow).empty());
}

TEST_CASE("A connection that broke counts once the last one of its rank ends, unless the rank has left") {
  const auto [last, is_lost] =
      GENERATE(table<message::Any, bool>({{message::Visit{}, true}, {message::Bye{.with_error = false}, false}}));
  Monitor monitor;
  std::optional<RankConnection> one = monitor.connect(1);
  RankConnection other = monitor.connect(1);
  one.reset();
  wait_until([&] {
    CHECK(monitor.peers.hear(kNow).empty());
    return monitor.peers.num_connected() == 1;
  });
  other.send(message::to_line(last));
  const auto news = hear(monitor.peers, 1 + static_cast<size_t>(is_lost));
  CHECK(news.front().message);
  CHECK(news.size() == 1 + static_cast<size_t>(is_lost));
  CHECK(monitor.peers.num_connected() == 0);
  CHECK(monitor.peers.hear(kNow).empty());
  // The next connection of this rank is judged by itself.
  std::optional<RankConnection> next = monitor.connect(1);
  next->send(message::to_line(message::Visit{}));
  CHECK(hear(monitor.peers, 1).size() == 1);
}

TEST_CASE("A rank that says bye is closed and not lost") {
  Monitor monitor;
  std::optional<RankConnection> one = monitor.connect(1);
  RankConnection two = monitor.connect(2);
  one->send(message::to_line(message::Bye{.with_error = true}));
  const auto news = hear(monitor.peers, 1);
  REQUIRE(news.size() == 1);
  CHECK(news.front().rank == 1);
  REQUIRE(news.front().message);
  CHECK(std::get<message::Bye>(*news.front().message).with_error);
  CHECK_FALSE(next_message(*one));
  one.reset();
  two.send(message::to_line(message::Pulse{}));
  const auto later = hear(monitor.peers, 1);
  CHECK((later.size() == 1 && later.front().rank == 2));
  CHECK(monitor.peers.num_introduced() == 2);
  CHECK(monitor.peers.num_connected() == 1);
}

TEST_CASE("The end reaches all ranks, even those with much unread input, and no stranger") {
  Monitor monitor;
  RankConnection one = monitor.connect(1);
  RankConnection two = monitor.connect(2);
  LineConnection stranger = monitor.stranger();
  wait_until([&] { return monitor.peers.hear(kNow).empty() && monitor.peers.num_unidentified() == 1; });
  // More than the system keeps for a connection, and less than a connection itself does.
  const std::string error(700'000, 'x');
  for (int i = 0; i < 5; ++i) {
    monitor.peers.broadcast(message::Failed{error, {}});
    monitor.peers.finish_sending(std::chrono::milliseconds(10));
  }
  const auto drain = [](RankConnection& connection, std::optional<message::End>& end) {
    const auto lines = connection.receive();
    REQUIRE(lines);
    for (const std::string& line : *lines) {
      const auto message = message::parse(line);
      REQUIRE(message);
      if (const auto* heard = std::get_if<message::End>(&*message)) end = *heard;
    }
  };
  std::optional<message::End> first;
  std::optional<message::End> second;
  std::thread sender([&] {
    monitor.peers.broadcast(message::End{.exit_code = 1, .kill = {2}});
    monitor.peers.finish_sending(kLong);
  });
  wait_until([&] {
    drain(one, first);
    drain(two, second);
    return first && second;
  });
  sender.join();
  CHECK((first->exit_code == 1 && first->kill == std::vector<int>{2}));
  CHECK((second->exit_code == 1 && second->kill == std::vector<int>{2}));
  const auto nothing = stranger.receive();
  REQUIRE(nothing);
  CHECK(nothing->empty());
}

TEST_CASE("A peer that does not read delays an end only up to the limit") {
  Monitor monitor;
  const RankConnection one = monitor.connect(1);
  for (int i = 0; i < 50; ++i) monitor.peers.broadcast(message::Failed{std::string(500'000, 'x'), {}});
  monitor.peers.finish_sending(std::chrono::milliseconds(50));
  CHECK(monitor.peers.num_connected() == 1);
}

}  // namespace mpzero
