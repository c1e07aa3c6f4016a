#include <fcntl.h>
#include <sys/resource.h>

#include <filesystem>
#include <set>

#include "app/liveness/link/listener.hpp"
#include "tests/app/liveness/link/loopback_ranks.hpp"
#include "tests/app/liveness/link/no_descriptors.hpp"
#include "tests/catch.hpp"
#include "tests/skip.hpp"

namespace mpzero {
namespace {

constexpr std::chrono::milliseconds kLong(30'000);

std::set<int> open_descriptors() {
  std::set<int> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int number = std::stoi(entry.path().filename());
    if (fcntl(number, F_GETFD) >= 0) all.insert(number);
  }
  return all;
}

bool has_ipv6() {
  const Descriptor socket = make_socket(AF_INET6);
  const auto address = socket_address("::1", 0);
  return socket && bind(socket.get(), address->get(), address->length) == 0;
}

}  // namespace

TEST_CASE("No connection is accepted at an address that is not listened on") {
  Listener listener({"127.0.0.1", "127.0.0.3"});
  CHECK(connect_to("127.0.0.1", listener.port(), kLong));
  CHECK(connect_to("127.0.0.3", listener.port(), kLong));
  CHECK_FALSE(connect_to("127.0.0.2", listener.port(), kLong));
  CHECK(listener.descriptors().size() == 2);
}

TEST_CASE("IPv6 addresses are listened on as such", "[ipv6]") {
  if (!has_ipv6()) {
    skip_test("IPv6");
    return;
  }
  Listener listener({"::1"});
  const auto one = connect_to("::1", listener.port(), kLong);
  REQUIRE(one);
  CHECK_FALSE(connect_to("127.0.0.1", listener.port(), kLong));
  wait_readable(listener.descriptors().front());
  const Listener::Visit visit = listener.accept();
  CHECK(visit.outcome == Listener::Outcome::kAccepted);
  CHECK_THAT(visit.from, Catch::StartsWith("[::1]:"));
}

TEST_CASE("The error names an address that cannot be listened on") {
  // From the block for documentation: no machine has it.
  CHECK_THROWS_WITH(Listener({"127.0.0.1", "203.0.113.7"}),
                    Catch::Contains("no TCP port of 203.0.113.7 could be opened") && Catch::Contains("Cannot assign"));
  CHECK_THROWS_WITH(Listener({"node1"}), Catch::Contains("\"node1\"") && Catch::Contains("not an IP address"));
  CHECK_THROWS_WITH(Listener({"127.0.0.1", "127.0.0.1"}), Catch::Contains("no TCP port is free on 127.0.0.1"));
}

TEST_CASE("Without addresses there is no port") {
  Listener listener({});
  CHECK(listener.port() == 0);
  CHECK(listener.descriptors().empty());
  CHECK(listener.accept().outcome == Listener::Outcome::kNobody);
}

TEST_CASE("Each address gets its turn, however many connect to another") {
  Listener listener({"127.0.0.1", "127.0.0.2"});
  std::vector<std::optional<LineConnection>> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(connect_to("127.0.0.1", listener.port(), kLong));
  auto other = connect_to("127.0.0.2", listener.port(), kLong);
  REQUIRE(other);
  wait_readable(listener.descriptors()[0]);
  wait_readable(listener.descriptors()[1]);
  std::vector<Listener::Visit> visits;
  visits.push_back(listener.accept());
  visits.push_back(listener.accept());
  other->send("me");
  wait_until([&] {
    for (Listener::Visit& visit : visits) {
      const auto lines = visit.connection->receive();
      if (lines && !lines->empty()) return true;
    }
    return false;
  });
}

TEST_CASE("Without a free descriptor each connection is turned away with the spare one") {
  Listener listener({"127.0.0.1"});
  std::vector<LineConnection> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(std::move(*connect_to("127.0.0.1", listener.port(), kLong)));
  {
    const NoDescriptors none;
    for (int i = 0; i < 2; ++i) {
      wait_readable(listener.descriptors().front());
      const Listener::Visit visit = listener.accept();
      CHECK(visit.outcome == Listener::Outcome::kTurnedAway);
      CHECK_THAT(visit.from, Catch::StartsWith("127.0.0.1:"));
    }
    CHECK(listener.accept().outcome == Listener::Outcome::kTurnedAway);
    CHECK(listener.accept().outcome == Listener::Outcome::kNobody);
  }
  for (LineConnection& client : clients) {
    wait_until([&] { return !client.receive(); });
  }
  clients.push_back(std::move(*connect_to("127.0.0.1", listener.port(), kLong)));
  wait_readable(listener.descriptors().front());
  CHECK(listener.accept().outcome == Listener::Outcome::kAccepted);
  CHECK(listener.accept().outcome == Listener::Outcome::kNobody);
}

TEST_CASE("If the spare descriptor is taken too, nothing is accepted until one is free again") {
  Listener listener({"127.0.0.1"});
  const auto client = connect_to("127.0.0.1", listener.port(), kLong);
  wait_readable(listener.descriptors().front());
  {
    const NoDescriptors none(/*and_lower=*/true);
    CHECK(listener.accept().outcome == Listener::Outcome::kFailed);
    CHECK(listener.accept().outcome == Listener::Outcome::kFailed);
  }
  CHECK(listener.accept().outcome == Listener::Outcome::kAccepted);
}

TEST_CASE("Programs that are started inherit no descriptor of a listener or a connection") {
  const std::set<int> before = open_descriptors();
  LoopbackRanks ranks(2);
  const RankRoster roster = ranks.roster(0);
  RankPeers peers(ranks.take_listener(0), roster.credentials());
  auto connection = LoopbackRanks::connect(ranks.roster(1), 0);
  REQUIRE(connection);
  identify(*connection, peers);
  int seen = 0;
  for (const int descriptor : open_descriptors()) {
    if (before.count(descriptor) > 0) continue;
    ++seen;
    CHECK((fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
  }
  // Two listeners with their spare descriptors, one of them watched, and both ends of the connection.
  CHECK(seen == 7);
}

}  // namespace mpzero
