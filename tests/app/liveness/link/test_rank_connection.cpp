#include <sys/socket.h>

#include "app/liveness/link/rank_connection.hpp"
#include "tests/app/liveness/link/loopback_ranks.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Refusal = Handshake::Refusal;
using State = RankConnection::State;

std::pair<LineConnection, LineConnection> connected() {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  return {LineConnection(Descriptor(ends[0])), LineConnection(Descriptor(ends[1]))};
}

const RankCredentials kOne = {.own = 1, .world_size = 2, .secret = kSecret};
const RankCredentials kZero = {.own = 0, .world_size = 2, .secret = kSecret};

// A relay between two ranks that passes on their lines, or changes them.
struct Intercepted {
  Intercepted() : Intercepted(connected(), connected()) {}
  Intercepted(std::pair<LineConnection, LineConnection> ones, std::pair<LineConnection, LineConnection> zeros)
      : one(RankConnection::to(std::move(ones.first), kOne, 0, kNow)),
        zero(RankConnection::from(std::move(zeros.first), kZero, kNow)),
        to_one(std::move(ones.second)),
        to_zero(std::move(zeros.second)) {}

  static std::vector<std::string> take(LineConnection& from) {
    return from.receive().value_or(std::vector<std::string>{});
  }
  void shake_hands() {
    for (int i = 0; i < 3; ++i) {
      for (const std::string& line : take(to_one)) to_zero.send(line);
      CHECK(zero.receive()->empty());
      for (const std::string& line : take(to_zero)) to_one.send(line);
      CHECK(one.receive()->empty());
    }
    REQUIRE((one.is_identified() && zero.is_identified()));
  }

  RankConnection one;
  RankConnection zero;
  LineConnection to_one;
  LineConnection to_zero;
};

}  // namespace

TEST_CASE("Lines sent before the other side is identified wait and arrive in order") {
  auto [ones, zeros] = connected();
  RankConnection one = RankConnection::to(std::move(ones), kOne, 0, kNow);
  RankConnection zero = RankConnection::from(std::move(zeros), kZero, kNow);
  one.send("first");
  one.send("second");
  CHECK(one.has_unsent());
  CHECK(zero.receive()->empty());
  CHECK(zero.state() == State::kChallenged);
  CHECK(one.receive()->empty());
  CHECK(one.is_identified());
  CHECK_FALSE(one.has_unsent());
  one.send("third");
  CHECK(zero.receive() == std::vector<std::string>{"first", "second", "third"});
  CHECK(zero.rank() == 1);
  zero.send("back");
  CHECK(one.receive() == std::vector<std::string>{"back"});
}

TEST_CASE("An unidentified peer receives only handshake lines") {
  auto [ones, stranger] = connected();
  RankConnection one = RankConnection::to(std::move(ones), kOne, 0, kNow);
  one.send("the loss is 3.14");
  const auto hello = stranger.receive();
  REQUIRE(hello);
  REQUIRE(hello->size() == 1);
  CHECK_THAT(hello->front(), Catch::StartsWith("hello 1 "));
  stranger.send("challenge " + std::string(kHexDigits, '0') + " " + std::string(kHexDigits, '0'));
  CHECK_FALSE(one.receive());
  CHECK(one.refusal() == Refusal::kWrongSecret);
  CHECK_FALSE(one.was_identified());
  CHECK(stranger.receive()->empty());
}

TEST_CASE("A line that was changed, left out, repeated, moved or turned back ends the connection") {
  Intercepted between;
  between.shake_hands();
  for (const char* line : {"a", "b", "c"}) between.one.send(line);
  std::vector<std::string> lines = Intercepted::take(between.to_one);
  REQUIRE(lines.size() == 3);
  std::vector<std::string> heard = {"a"};
  SECTION("changed") { lines[1].back() = 'x'; }
  SECTION("its code changed") { lines[1].front() = lines[1].front() == '0' ? '1' : '0'; }
  SECTION("longer") { lines[1] += "b"; }
  SECTION("left out") { lines.erase(lines.begin() + 1); }
  SECTION("repeated") { lines[1] = lines[0]; }
  SECTION("moved") { std::swap(lines[1], lines[2]); }
  SECTION("without a code") { lines[1] = "b"; }
  SECTION("of the other side") {
    between.zero.send("b");
    between.zero.send("b");
    lines[1] = Intercepted::take(between.to_zero).back();
  }
  SECTION("of another connection") {
    Intercepted other;
    other.shake_hands();
    for (const char* line : {"a", "b"}) other.one.send(line);
    lines[1] = Intercepted::take(other.to_one).back();
  }
  for (const std::string& line : lines) between.to_zero.send(line);
  CHECK(between.zero.receive() == heard);
  CHECK(between.zero.state() == State::kClosed);
  CHECK(between.zero.refusal() == Refusal::kChanged);
  CHECK(between.zero.was_identified());
  CHECK_FALSE(between.zero.receive());
}

TEST_CASE("A line that is dropped because too many wait does not invalidate later lines") {
  auto [ones, zeros] = connected();
  RankConnection one = RankConnection::to(std::move(ones), kOne, 0, kNow);
  RankConnection zero = RankConnection::from(std::move(zeros), kZero, kNow);
  zero.receive();
  one.receive();
  zero.receive();
  REQUIRE((one.is_identified() && zero.is_identified()));
  for (int i = 0; i < 10; ++i) one.send(std::string(500'000, 'x'));
  std::vector<std::string> lines;
  const auto hear = [&] {
    one.flush();
    const auto more = zero.receive();
    REQUIRE(more);
    lines.insert(lines.end(), more->begin(), more->end());
  };
  wait_until([&] {
    hear();
    return !one.has_unsent();
  });
  hear();
  CHECK((!lines.empty() && lines.size() < 10));
  one.send("last");
  hear();
  CHECK(lines.back() == "last");
}

TEST_CASE("Neither half a line nor a long one identifies a peer") {
  auto [stranger, zeros] = connected();
  RankConnection zero = RankConnection::from(std::move(zeros), kZero, kNow);
  const std::string hello = Handshake::connecting(kOne, 0, kNow).hello();
  SECTION("half a line, until it has taken too long") {
    REQUIRE(send(stranger.descriptor(), hello.data(), hello.size() / 2, 0) > 0);
    CHECK(zero.receive()->empty());
    zero.look_at_clock(kNow + kHandshakeLimit - std::chrono::milliseconds(1));
    CHECK(zero.state() == State::kUnidentified);
    zero.look_at_clock(kNow + kHandshakeLimit);
    CHECK(zero.refusal() == Refusal::kTooLate);
    CHECK_FALSE(zero.receive());
  }
  SECTION("a long line, which is not read further") {
    const std::string line(100'000, 'x');
    REQUIRE(send(stranger.descriptor(), line.data(), line.size(), MSG_NOSIGNAL) > 0);
    CHECK_FALSE(zero.receive());
    CHECK(zero.refusal() == Refusal::kTooLong);
  }
  SECTION("a handshake followed by a long line is valid") {
    Handshake one = Handshake::connecting(kOne, 0, kNow);
    stranger.send(one.hello());
    CHECK(zero.receive()->empty());
    const std::string proof = one.take(stranger.receive()->front()).value();
    LineSeal seal(one.session_key(Handshake::Role::kConnects));
    const std::string status(5000, 's');
    const std::string both = proof + "\n" + seal.close(status) + "\n";
    REQUIRE(send(stranger.descriptor(), both.data(), both.size(), 0) == static_cast<ssize_t>(both.size()));
    CHECK(zero.receive() == std::vector<std::string>{status});
  }
}

TEST_CASE("A connection that breaks is gone, in every state") {
  Intercepted between;
  const int lines_before = GENERATE(0, 1, 2);
  if (lines_before == 2) {
    between.shake_hands();
  } else if (lines_before == 1) {
    for (const std::string& line : Intercepted::take(between.to_one)) between.to_zero.send(line);
    CHECK(between.zero.receive()->empty());
    CHECK(between.zero.state() == State::kChallenged);
  }
  between.to_zero.close();
  CHECK_FALSE(between.zero.receive());
  CHECK(between.zero.refusal() == Refusal::kClosed);
  CHECK(between.zero.was_identified() == (lines_before == 2));
  between.zero.send("nobody hears it");
  CHECK_FALSE(between.zero.has_unsent());
}

}  // namespace mpzero
