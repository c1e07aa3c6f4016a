#include <poll.h>
#include <unistd.h>

#include <csignal>

#include "app/control_channel.hpp"
#include "app/rank_status.hpp"
#include "app/stop_request.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

bool readable(int descriptor) {
  pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
  return poll(&wanted, 1, 0) == 1;
}

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

TEST_CASE("The first signal is the one that stops, and when it came is known") {
  const StopRequest stop;
  CHECK_FALSE(stop.requested());
  CHECK(stop.seconds_since() == 0);
  CHECK_FALSE(readable(stop.descriptor()));
  raise(SIGUSR1);
  raise(SIGTERM);
  CHECK(stop.requested());
  CHECK(stop.signal() == SIGUSR1);
  CHECK(stop.seconds_since() > 0);
  CHECK_FALSE(stop.at_once());
  CHECK(readable(stop.descriptor()));
  stop.drain();
  CHECK_FALSE(readable(stop.descriptor()));
}

TEST_CASE("Two interruptions, and no two other signals, mean at once") {
  const StopRequest stop;
  raise(SIGTERM);
  raise(SIGTERM);
  raise(SIGINT);
  CHECK_FALSE(stop.at_once());
  raise(SIGINT);
  CHECK(stop.at_once());
  CHECK(stop.signal() == SIGTERM);
}

TEST_CASE("A new request knows nothing of an old one, and what was ignored stays ignored") {
  struct sigaction terminate {};
  sigaction(SIGTERM, nullptr, &terminate);
  {
    const StopRequest stop;
    raise(SIGTERM);
    CHECK(stop.requested());
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  struct sigaction before {};
  sigaction(SIGHUP, &ignore, &before);
  {
    const StopRequest stop;
    CHECK_FALSE(stop.requested());
    raise(SIGHUP);
    CHECK_FALSE(stop.requested());
    raise(SIGUSR2);
    CHECK(stop.signal() == SIGUSR2);
  }
  struct sigaction after {};
  sigaction(SIGHUP, &before, &after);
  CHECK(after.sa_handler == SIG_IGN);
  sigaction(SIGTERM, nullptr, &after);
  CHECK(after.sa_handler == terminate.sa_handler);
}

TEST_CASE("Signals have their names") {
  CHECK(signal_name(SIGTERM) == "SIGTERM");
  CHECK(signal_name(SIGUSR1) == "SIGUSR1");
}

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

TEST_CASE("Only the process that was meant is killed") {
  const RankIdentity self = this_process(0, 1);
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  RankIdentity other = self;
  other.pid = child;
  other.started = 1;  // an earlier process of this id
  kill_process(other);
  other.started = 0;
  kill_process(other);
  CHECK(kill(child, 0) == 0);
  kill(child, SIGKILL);
}

}  // namespace mpzero
