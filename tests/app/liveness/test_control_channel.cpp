#include <poll.h>

#include <chrono>

#include "app/liveness/control_channel.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

// What comes within a few seconds.
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

TEST_CASE("Lines go over a connection whole, long ones too, and its end is noticed") {
  Listener listener;
  auto one = connect_to("127.0.0.1", listener.port(), std::chrono::milliseconds(5000));
  REQUIRE(one);
  auto other = listener.accept();
  REQUIRE(other);
  CHECK_FALSE(listener.accept());
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

TEST_CASE("Who does not read loses lines, and holds nobody up") {
  Listener listener;
  auto one = connect_to("127.0.0.1", listener.port(), std::chrono::milliseconds(5000));
  REQUIRE(one);
  const std::string line(100'000, 'x');
  for (int i = 0; i < 1000; ++i) one->send(line);
  CHECK(one->has_unsent());
}

TEST_CASE("Where nobody listens there is no connection") {
  int port = 0;
  {
    const Listener listener;
    port = listener.port();
  }
  CHECK_FALSE(connect_to("127.0.0.1", port, std::chrono::milliseconds(5000)));
  CHECK_FALSE(connect_to("no address", 1, std::chrono::milliseconds(10)));
}

}  // namespace mpzero
