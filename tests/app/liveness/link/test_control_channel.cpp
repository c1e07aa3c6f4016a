#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>

#include "app/liveness/link/control_channel.hpp"
#include "app/liveness/link/listener.hpp"
#include "tests/app/liveness/link/own_network.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

// What arrives within a few seconds.
std::vector<std::string> receive_lines(LineConnection& connection, size_t count) {
  std::vector<std::string> lines;
  while (lines.size() < count) {
    pollfd wanted{.fd = connection.descriptor(), .events = POLLIN, .revents = 0};
    if (poll(&wanted, 1, 10'000) != 1) break;
    const auto more = connection.receive();
    if (!more) break;
    lines.insert(lines.end(), more->begin(), more->end());
  }
  return lines;
}

}  // namespace

TEST_CASE("Lines arrive complete, long ones too, and the end of a connection is noticed") {
  Listener listener({"127.0.0.1"});
  auto one = connect_to("127.0.0.1", listener.port(), std::chrono::milliseconds(5000));
  REQUIRE(one);
  auto other = listener.accept().connection;
  REQUIRE(other);
  CHECK(listener.accept().outcome == Listener::Outcome::kNobody);
  const std::string long_line(200'000, 'x');
  one->send("first");
  one->send(long_line);
  one->send("third");
  std::vector<std::string> lines;
  while (lines.size() < 3) {
    one->flush();
    const auto more = receive_lines(*other, 1);
    REQUIRE_FALSE(more.empty());
    lines.insert(lines.end(), more.begin(), more.end());
  }
  CHECK(lines == std::vector<std::string>{"first", long_line, "third"});
  CHECK(other->receive()->empty());
  one->send("last");
  one.reset();
  CHECK(receive_lines(*other, 2) == std::vector<std::string>{"last"});
  CHECK_FALSE(other->receive());
}

TEST_CASE("A peer that does not read loses lines and does not block the sender") {
  const Listener listener({"127.0.0.1"});
  auto one = connect_to("127.0.0.1", listener.port(), std::chrono::milliseconds(5000));
  REQUIRE(one);
  const std::string line(100'000, 'x');
  for (int i = 0; i < 1000; ++i) one->send(line);
  CHECK(one->has_unsent());
}

TEST_CASE("Without a listener there is no connection") {
  int port = 0;
  {
    const Listener listener({"127.0.0.1"});
    port = listener.port();
  }
  CHECK_FALSE(connect_to("127.0.0.1", port, std::chrono::milliseconds(5000)));
  CHECK_FALSE(connect_to("no address", 1, std::chrono::milliseconds(10)));
}

TEST_CASE("receive_one() takes one line at a time, and none that is too long") {
  Listener listener({"127.0.0.1"});
  auto one = connect_to("127.0.0.1", listener.port(), std::chrono::milliseconds(5000));
  REQUIRE(one);
  auto other = listener.accept().connection;
  REQUIRE(other);
  const auto next = [&] {
    pollfd wanted{.fd = other->descriptor(), .events = POLLIN, .revents = 0};
    REQUIRE(poll(&wanted, 1, 10'000) == 1);
    return other->receive_one(8);
  };
  SECTION("they arrive one by one, and later ones as before") {
    one->send("1234567");
    one->send("two");
    one->send("three");
    CHECK(next() == std::vector<std::string>{"1234567"});
    CHECK(next() == std::vector<std::string>{"two"});
    CHECK(receive_lines(*other, 1) == std::vector<std::string>{"three"});
    CHECK_FALSE(other->was_too_long());
  }
  SECTION("a line with its end is too long by one byte") {
    one->send("12345678");
    CHECK_FALSE(next());
    CHECK(other->was_too_long());
  }
  SECTION("so is one that does not end") {
    one->send(std::string(100'000, 'x'));
    CHECK_FALSE(next());
    CHECK(other->was_too_long());
    CHECK_FALSE(other->receive_one(8));
  }
  SECTION("half a line is not a line") {
    REQUIRE(send(one->descriptor(), "half", 4, 0) == 4);
    CHECK(next()->empty());
    one.reset();
    CHECK_FALSE(next());
    CHECK_FALSE(other->was_too_long());
  }
}

TEST_CASE("Addresses are shown with their ports") {
  CHECK(show(*socket_address("10.1.2.3", 4711)) == "10.1.2.3:4711");
  CHECK(show(*socket_address("fd00::2", 80)) == "[fd00::2]:80");
  CHECK_FALSE(socket_address("node1", 80));
  CHECK_FALSE(socket_address("", 80));
}

TEST_CASE("A network that fails while something is sent is not taken for the end of the other side", "[own_network]") {
  bool by_network = false;
  bool has_ended = false;
  const bool has_run = in_own_network("ip link set lo up", [&] {
    Listener listener({"127.0.0.1"});
    std::optional<LineConnection> one = connect_to("127.0.0.1", listener.port(), std::chrono::milliseconds(5000));
    const std::optional<LineConnection> other = listener.accept().connection;
    if (!one || !other) return;
    const unsigned limit = 1;  // milliseconds until unacknowledged data end the connection
    setsockopt(one->descriptor(), IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);
    if (std::system("ip link set lo down") != 0) return;
    one->send("lost");
    pollfd wanted{.fd = one->descriptor(), .events = 0, .revents = 0};
    if (poll(&wanted, 1, 30'000) != 1) return;
    one->send("the system reports the error here");
    has_ended = !one->receive();
    by_network = one->broken_by_network();
  });
  if (!has_run) return;
  CHECK(has_ended);
  CHECK(by_network);
}

}  // namespace mpzero
