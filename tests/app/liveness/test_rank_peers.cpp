#include "app/liveness/rank_peers.hpp"
#include "loopback_ranks.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

constexpr std::chrono::milliseconds kLong(30'000);

// Rank 0 of three, which the others report to.
struct Monitor {
  Monitor() : roster(ranks.roster(0)), peers(ranks.take_listener(0), roster) {}

  LineConnection connect(int rank) {
    auto connection = LoopbackRanks::connect(ranks.roster(rank), 0);
    REQUIRE(connection);
    const int expected = peers.num_connected() + 1;
    wait_until([&] {
      CHECK(peers.hear().empty());
      return peers.num_connected() == expected;
    });
    return std::move(*connection);
  }

  LoopbackRanks ranks{3};
  RankRoster roster;
  RankPeers peers;
};

}  // namespace

TEST_CASE("Who does not begin with this run's token and another rank is not heard, and sees the connection close") {
  Monitor monitor;
  const std::string token = monitor.roster.token;
  const auto first_word = GENERATE_COPY(
      message::Any(message::Hello{.token = "another run's", .rank = 1}), message::Any(message::Bye{}),
      message::Any(message::Hello{.token = token, .rank = 3}), message::Any(message::Hello{.token = token, .rank = -1}),
      message::Any(message::Hello{.token = token, .rank = 0}));
  auto stranger = connect_to("127.0.0.1", monitor.roster.identity(0).port, kLong);
  REQUIRE(stranger);
  stranger->send(message::to_line(first_word));
  stranger->send(message::to_line(message::Hello{.token = token, .rank = 1}));
  stranger->send(message::to_line(message::Failed{"heard from a stranger", {}}));
  wait_until([&] {
    CHECK(monitor.peers.hear().empty());
    return !stranger->receive();
  });
  CHECK(monitor.peers.num_introduced() == 0);
  CHECK(monitor.peers.num_connected() == 0);
  CHECK(monitor.peers.descriptors().size() == 1);
}

TEST_CASE("A stranger's noise closes its connection") {
  Monitor monitor;
  auto stranger = connect_to("127.0.0.1", monitor.roster.identity(0).port, kLong);
  REQUIRE(stranger);
  stranger->send("GET / HTTP/1.1");
  wait_until([&] {
    CHECK(monitor.peers.hear().empty());
    return !stranger->receive();
  });
}

TEST_CASE("Each rank is heard in its order, and words that no rank says are passed over") {
  Monitor monitor;
  LineConnection one = monitor.connect(1);
  LineConnection two = monitor.connect(2);
  one.send(message::to_line(message::Status{in_step(1)}));
  one.send("noise");
  one.send(message::to_line(message::Status{in_step(2)}));
  two.send(message::to_line(message::Failed{"an error", {}}));
  const auto news = hear(monitor.peers, 3);
  REQUIRE(news.size() == 3);
  std::vector<int64_t> steps;
  for (const RankPeers::News& each : news) {
    REQUIRE(each.words);
    if (const auto* status = std::get_if<message::Status>(&*each.words)) {
      CHECK(each.rank == 1);
      steps.push_back(status->status.step);
    } else {
      CHECK(each.rank == 2);
      CHECK(std::get<message::Failed>(*each.words).error == "an error");
    }
  }
  CHECK(steps == std::vector<int64_t>{1, 2});
}

TEST_CASE("A connection that breaks is the loss of its rank, once") {
  Monitor monitor;
  std::optional<LineConnection> one = monitor.connect(1);
  one->send(message::to_line(message::Status{in_step(1)}));
  one.reset();
  const auto news = hear(monitor.peers, 2);
  REQUIRE(news.size() == 2);
  CHECK(news[0].words);
  CHECK((news[1].rank == 1 && !news[1].words));
  CHECK(monitor.peers.num_introduced() == 1);
  CHECK(monitor.peers.num_connected() == 0);
  CHECK(monitor.peers.hear().empty());
}

TEST_CASE("A rank that says bye is closed and not lost") {
  Monitor monitor;
  std::optional<LineConnection> one = monitor.connect(1);
  LineConnection two = monitor.connect(2);
  one->send(message::to_line(message::Bye{.with_error = true}));
  const auto news = hear(monitor.peers, 1);
  REQUIRE(news.size() == 1);
  CHECK(news.front().rank == 1);
  REQUIRE(news.front().words);
  CHECK(std::get<message::Bye>(*news.front().words).with_error);
  CHECK_FALSE(next_words(*one));
  one.reset();
  two.send(message::to_line(message::Pulse{}));
  const auto later = hear(monitor.peers, 1);
  CHECK((later.size() == 1 && later.front().rank == 2));
  CHECK(monitor.peers.num_introduced() == 2);
  CHECK(monitor.peers.num_connected() == 1);
}

TEST_CASE("The end reaches all ranks, also those with much unread, and no stranger") {
  Monitor monitor;
  LineConnection one = monitor.connect(1);
  LineConnection two = monitor.connect(2);
  auto stranger = connect_to("127.0.0.1", monitor.roster.identity(0).port, kLong);
  REQUIRE(stranger);
  wait_until([&] { return monitor.peers.hear().empty() && monitor.peers.descriptors().size() == 4; });
  // More than the system keeps for a connection, and less than a connection itself does.
  const std::string error(700'000, 'x');
  for (int i = 0; i < 5; ++i) {
    monitor.peers.broadcast(message::Failed{error, {}});
    monitor.peers.finish_sending(std::chrono::milliseconds(10));
  }
  const auto drain = [](LineConnection& connection, std::optional<message::End>& end) {
    const auto lines = connection.receive();
    REQUIRE(lines);
    for (const std::string& line : *lines) {
      const auto words = message::parse(line);
      REQUIRE(words);
      if (const auto* heard = std::get_if<message::End>(&*words)) end = *heard;
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
  const auto nothing = stranger->receive();
  REQUIRE(nothing);
  CHECK(nothing->empty());
}

TEST_CASE("Who does not read holds up an end for as long as was said, and no longer") {
  Monitor monitor;
  const LineConnection one = monitor.connect(1);
  for (int i = 0; i < 50; ++i) monitor.peers.broadcast(message::Failed{std::string(500'000, 'x'), {}});
  monitor.peers.finish_sending(std::chrono::milliseconds(50));
  CHECK(monitor.peers.num_connected() == 1);
}

}  // namespace mpzero
