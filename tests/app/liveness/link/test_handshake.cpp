#include <array>
#include <map>
#include <set>

#include "app/liveness/link/handshake.hpp"
#include "tests/app/liveness/link/loopback_ranks.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using State = Handshake::State;
using Refusal = Handshake::Refusal;
using Role = Handshake::Role;

RankCredentials rank(int own, const HashBytes& secret = kSecret, int world_size = 4) {
  return {.own = own, .world_size = world_size, .secret = secret};
}

// Rank 2 connects to rank 0.
struct Pair {
  explicit Pair(const RankCredentials& connects = rank(2), const RankCredentials& accepts = rank(0), int wanted = 0)
      : connecting(Handshake::connecting(connects, wanted, kNow)), accepting(Handshake::accepting(accepts, kNow)) {}

  // Runs the handshake as far as both sides cooperate. Returns the lines that were sent, in order.
  std::vector<std::string> shake() {
    std::vector<std::string> lines = {connecting.hello()};
    const auto challenge = accepting.take(lines.back());
    if (!challenge) return lines;
    lines.push_back(*challenge);
    const auto proof = connecting.take(*challenge);
    if (!proof) return lines;
    lines.push_back(*proof);
    CHECK_FALSE(accepting.take(*proof));
    return lines;
  }

  Handshake connecting;
  Handshake accepting;
};

enum class Event { kHello, kProof, kChallenge, kOtherLine, kWrongSecret, kWait, kLimit, kEnd };
constexpr std::array kEvents = {Event::kHello,       Event::kProof, Event::kChallenge, Event::kOtherLine,
                                Event::kWrongSecret, Event::kWait,  Event::kLimit,     Event::kEnd};

// One side of a handshake whose other side is scripted by the test.
class Side {
 public:
  explicit Side(Role role) : role_(role) {}

  State state() const { return own().state(); }
  const Handshake& own() const { return role_ == Role::kConnects ? pair_.connecting : pair_.accepting; }
  // Returns whether there was an answer.
  bool meet(Event event) {
    Handshake& own = role_ == Role::kConnects ? pair_.connecting : pair_.accepting;
    switch (event) {
      case Event::kHello:
        return take(pair_.connecting.hello());
      case Event::kChallenge:
        return take(Handshake(pair_.accepting).take(pair_.connecting.hello()).value_or(recorded_[1]));
      case Event::kProof:
        return take(challenge_ ? Handshake(pair_.connecting).take(*challenge_).value() : recorded_[2]);
      case Event::kOtherLine:
        return take("GET / HTTP/1.1");
      case Event::kWrongSecret:
        return take(wrong_line());
      case Event::kWait:
        own.look_at_clock(kNow + kHandshakeLimit - std::chrono::nanoseconds(1));
        return false;
      case Event::kLimit:
        own.look_at_clock(kNow + kHandshakeLimit);
        return false;
      case Event::kEnd:
        own.end(Refusal::kClosed);
        return false;
    }
    return false;
  }

 private:
  bool take(const std::string& line) {
    Handshake& own = role_ == Role::kConnects ? pair_.connecting : pair_.accepting;
    const std::optional<std::string> answer = own.take(line);
    if (answer && role_ == Role::kAccepts) challenge_ = answer;
    return answer.has_value();
  }
  // The expected line, from a peer with another secret.
  std::string wrong_line() {
    Pair others(rank(2, kOtherSecret), rank(0, kOtherSecret));
    const std::vector<std::string> lines = others.shake();
    if (role_ == Role::kConnects) return lines[1];
    return state() == State::kUnidentified ? lines[0] : lines[2];
  }

  Role role_;
  Pair pair_;
  std::vector<std::string> recorded_ = Pair().shake();
  std::optional<std::string> challenge_;
};

// As in handshake.hpp; what is missing here leads to kClosed.
State after(Role role, State state, Event event) {
  if (state == State::kClosed || event == Event::kEnd) return State::kClosed;
  if (state == State::kIdentified || event == Event::kWait) return state;
  if (role == Role::kConnects) return event == Event::kChallenge ? State::kIdentified : State::kClosed;
  if (state == State::kUnidentified && event == Event::kHello) return State::kChallenged;
  if (state == State::kChallenged && event == Event::kProof) return State::kIdentified;
  return State::kClosed;
}

}  // namespace

TEST_CASE("Two ranks that know the secret identify each other, and have the same keys") {
  Pair pair;
  const std::vector<std::string> lines = pair.shake();
  CHECK(lines.size() == 3);
  CHECK(pair.connecting.state() == State::kIdentified);
  CHECK(pair.accepting.state() == State::kIdentified);
  CHECK(pair.accepting.rank() == 2);
  CHECK(pair.connecting.rank() == 0);
  CHECK(pair.connecting.session_key(Role::kConnects) == pair.accepting.session_key(Role::kConnects));
  CHECK(pair.connecting.session_key(Role::kAccepts) == pair.accepting.session_key(Role::kAccepts));
  std::set<HashBytes> keys = {pair.connecting.session_key(Role::kConnects),
                              pair.connecting.session_key(Role::kAccepts)};
  Pair another;
  another.shake();
  keys.insert(another.connecting.session_key(Role::kConnects));
  keys.insert(another.connecting.session_key(Role::kAccepts));
  CHECK(keys.size() == 4);
  for (const std::string& line : lines) {
    CHECK(line.size() < kHandshakeLine);
    CHECK(line.find(to_hex(kSecret)) == std::string::npos);
    CHECK(line.find('\n') == std::string::npos);
  }
}

TEST_CASE("Every sequence of three events from every state follows the table") {
  for (const Role role : {Role::kConnects, Role::kAccepts}) {
    for (const Event first : kEvents) {
      for (const Event second : kEvents) {
        for (const Event third : kEvents) {
          Side side(role);
          State expected = State::kUnidentified;
          CHECK(side.state() == expected);
          for (const Event event : {first, second, third}) {
            const State before = expected;
            expected = after(role, before, event);
            const bool answered = side.meet(event);
            CAPTURE(static_cast<int>(role), static_cast<int>(first), static_cast<int>(second), static_cast<int>(third),
                    static_cast<int>(event));
            REQUIRE(side.state() == expected);
            // A hello is answered with a challenge, and a challenge with a proof. Nothing else is answered.
            const State answers = role == Role::kAccepts ? State::kChallenged : State::kIdentified;
            CHECK(answered == (expected == answers && before == State::kUnidentified));
          }
        }
      }
    }
  }
}

TEST_CASE("The first reason for a failed handshake is kept") {
  const auto [event, refusal] = GENERATE(table<Event, Refusal>({{Event::kOtherLine, Refusal::kNotOurs},
                                                                {Event::kWrongSecret, Refusal::kWrongSecret},
                                                                {Event::kLimit, Refusal::kTooLate},
                                                                {Event::kEnd, Refusal::kClosed}}));
  const Role role = GENERATE(Role::kConnects, Role::kAccepts);
  Side side(role);
  CHECK(side.own().refusal() == Refusal::kNone);
  side.meet(event);
  CHECK(side.own().refusal() == refusal);
  side.meet(Event::kOtherLine);
  side.meet(Event::kEnd);
  side.meet(Event::kLimit);
  CHECK(side.own().refusal() == refusal);
}

TEST_CASE("Neither side identifies a peer with another secret, another rank or another world size") {
  struct Case {
    RankCredentials connects;
    RankCredentials accepts;
    int wanted;
  };
  const Case one = GENERATE(Case{rank(2, kOtherSecret), rank(0), 0},  // another secret
                            Case{rank(2), rank(1), 0},                // another rank answers
                            Case{rank(2, kSecret, 5), rank(0), 0},    // another world_size
                            Case{rank(0), rank(0), 0}, Case{rank(4, kSecret, 5), rank(0, kSecret, 4), 0},
                            Case{rank(-1), rank(0), 0});
  Pair pair(one.connects, one.accepts, one.wanted);
  CHECK(pair.shake().size() == 1);
  CHECK(pair.accepting.state() == State::kClosed);
  CHECK(pair.accepting.refusal() == Refusal::kWrongSecret);
}

TEST_CASE("A process that answers without the secret is not taken for a monitor") {
  Pair pair;
  // It has received the hello and knows the form of handshakes.
  Pair others(rank(2, kOtherSecret), rank(0, kOtherSecret));
  CHECK_FALSE(pair.connecting.take(others.shake()[1]));
  CHECK(pair.connecting.refusal() == Refusal::kWrongSecret);
}

TEST_CASE("A recorded handshake proves nothing in another connection, to either side") {
  Pair recorded;
  const std::vector<std::string> lines = recorded.shake();
  Handshake accepting = Handshake::accepting(rank(0), kNow);
  REQUIRE(accepting.take(lines[0]));
  CHECK_FALSE(accepting.take(lines[2]));
  CHECK(accepting.refusal() == Refusal::kWrongSecret);
  Handshake connecting = Handshake::connecting(rank(2), 0, kNow);
  CHECK_FALSE(connecting.take(lines[1]));
  CHECK(connecting.refusal() == Refusal::kWrongSecret);
}

TEST_CASE("No code of one side is valid for the other, so codes cannot be reflected") {
  Pair pair;
  const std::string challenge = pair.accepting.take(pair.connecting.hello()).value();
  SECTION("the acceptor's code as a proof") {
    const std::string code = challenge.substr(challenge.rfind(' ') + 1);
    pair.accepting.take("proof " + code);
    CHECK(pair.accepting.refusal() == Refusal::kWrongSecret);
  }
  SECTION("the connector's code as a challenge") {
    const std::string hello = pair.connecting.hello();
    pair.connecting.take("challenge " + hello.substr(hello.find(' ', 6) + 1));
    CHECK(pair.connecting.refusal() == Refusal::kWrongSecret);
  }
  SECTION("a rank's hello to it, sent back to it") {
    Handshake own = Handshake::accepting(rank(2), kNow);
    CHECK_FALSE(own.take(pair.connecting.hello()));
    CHECK(own.refusal() == Refusal::kWrongSecret);
  }
  SECTION("a challenge for one rank, handed to another") {
    Handshake other = Handshake::connecting(rank(3), 0, kNow);
    CHECK_FALSE(other.take(challenge));
    CHECK(other.refusal() == Refusal::kWrongSecret);
  }
}

TEST_CASE("A line that differs from a handshake line in any letter is rejected") {
  const std::string hello = Pair().connecting.hello();
  const std::string nonce(kHexDigits, 'a');
  const std::string line = GENERATE_COPY(
      std::string(), std::string(" "), std::string("hello"), std::string("hello 1"), hello + " ", hello + " x",
      " " + hello, "hello  " + hello.substr(6), "hello 1x " + nonce + " " + nonce,
      "hello 1 " + nonce + " " + nonce + "a", "hello 1 " + nonce.substr(1) + " " + nonce,
      "hello 1 " + nonce + " " + nonce.substr(1) + "g", "hello 99999999999 " + nonce + " " + nonce,
      "hello 1 " + nonce + " " + std::string(kHexDigits, '\0'), "Hello" + hello.substr(5), std::string(500, ' '));
  Handshake accepting = Handshake::accepting(rank(0), kNow);
  CHECK_FALSE(accepting.take(line));
  CHECK(accepting.refusal() == Refusal::kNotOurs);
}

}  // namespace mpzero
