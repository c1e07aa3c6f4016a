#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <set>

#include "app/liveness/link/dialer.hpp"
#include "tests/app/liveness/link/loopback_ranks.hpp"
#include "tests/app/liveness/link/no_descriptors.hpp"
#include "tests/app/liveness/link/own_network.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using message::Reach;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLimit(5);
constexpr const char* kOther = "127.0.1.1";

// A port at which nothing answers, not even a refusal: its queue of connections is full, so that the system drops more.
class SilentPort {
 public:
  // `number` 0: one that the system chooses.
  explicit SilentPort(int number = 0) {
    SocketAddress to = socket_address(kLoopback, number).value();
    REQUIRE(bind(listener_.get(), to.get(), to.length) == 0);
    REQUIRE(listen(listener_.get(), /*backlog=*/0) == 0);
    REQUIRE(getsockname(listener_.get(), to.get(), &to.length) == 0);
    number_ = to.port();
    for (const Descriptor& socket : waiting_) connect(socket.get(), to.get(), to.length);
  }
  int number() const { return number_; }

 private:
  Descriptor listener_ = make_socket(AF_INET);
  // More than a backlog of 0 takes.
  std::array<Descriptor, 4> waiting_ = {make_socket(AF_INET), make_socket(AF_INET), make_socket(AF_INET),
                                        make_socket(AF_INET)};
  int number_ = 0;
};

// The next answer, while no time passes.
Dialer::Answer answer(Dialer& dialer, LivenessTime now = kNow, const std::function<void()>& meanwhile = {}) {
  std::vector<Dialer::Answer> answers;
  wait_until([&] {
    if (meanwhile) meanwhile();
    answers = dialer.hear(now);
    return !answers.empty();
  });
  REQUIRE(answers.size() == 1);
  return std::move(answers.front());
}

// A rank of another machine with these addresses, at one port.
RankRoster with_addresses(const LoopbackRanks& ranks, std::vector<std::string> addresses, int port) {
  RankRoster own = ranks.roster(1);
  own.ranks[0].machine = "another";
  own.ranks[0].addresses = std::move(addresses);
  own.ranks[0].port = port;
  return own;
}

}  // namespace

TEST_CASE("A rank answers, and what it says next waits in the connection") {
  LoopbackRanks ranks(2);
  const RankRoster own = ranks.roster(1);
  const RankRoster other = ranks.roster(0);
  RankPeers peers(ranks.take_listener(0), other.credentials());
  Dialer dialer(own);
  dialer.dial(0, kNow, kLimit);
  Dialer::Answer found = answer(dialer, kNow, [&] { peers.hear(kNow); });
  CHECK((found.rank == 0 && found.reach == Reach::kAnswers));
  REQUIRE(found.connection);
  CHECK(peers.num_connected() == 1);
  CHECK(std::holds_alternative<message::Pulse>(*next_message(*found.connection)));
  peers.broadcast(message::Ask{});
  CHECK(std::holds_alternative<message::Ask>(*next_message(*found.connection)));
  CHECK_FALSE(dialer.wakes_at());
}

TEST_CASE("The next address is tried when the one before has not answered for a quarter of a second") {
  const LoopbackRanks ranks(2);
  Listener listener({kOther});
  const SilentPort silent(listener.port());
  const RankRoster own = with_addresses(ranks, {kLoopback, kOther}, listener.port());
  Dialer dialer(own);
  dialer.dial(0, kNow, kLimit);
  const LivenessTime due = kNow + milliseconds(250);
  CHECK(dialer.wakes_at() == due);
  CHECK(dialer.hear(due - milliseconds(1)).empty());
  CHECK(listener.accept().outcome == Listener::Outcome::kNobody);
  CHECK(dialer.hear(due).empty());
  RankPeers peers(std::move(listener), ranks.roster(0).credentials());
  CHECK(answer(dialer, due, [&] { peers.hear(due); }).reach == Reach::kAnswers);
}

TEST_CASE("However many addresses a rank has, all of them are tried in the first half of the limit") {
  const LoopbackRanks ranks(2);
  Listener listener({kOther});
  const SilentPort silent(listener.port());
  std::vector<std::string> addresses(31, kLoopback);
  for (size_t i = 0; i < addresses.size(); ++i) addresses[i] = fmt::format("127.0.2.{}", i + 1);
  addresses.emplace_back(kOther);
  const RankRoster own = with_addresses(ranks, addresses, listener.port());
  Dialer dialer(own);
  dialer.dial(0, kNow, kLimit);
  std::optional<LivenessTime> due;
  for (int i = 0; i < 100 && listener.accept().outcome == Listener::Outcome::kNobody; ++i) {
    due = dialer.wakes_at();
    REQUIRE(due);
    CHECK(dialer.hear(*due).empty());
  }
  CHECK(*due <= kNow + milliseconds(kLimit) / 2);
  CHECK(*due > kNow);
}

TEST_CASE("An address that refuses is followed by the next one at once") {
  const LoopbackRanks ranks(2);
  Listener listener({kOther});
  const RankRoster own = with_addresses(ranks, {"127.0.3.1", "127.0.3.2", kOther}, listener.port());
  RankPeers peers(std::move(listener), ranks.roster(0).credentials());
  Dialer dialer(own);
  dialer.dial(0, kNow, kLimit);
  CHECK(answer(dialer, kNow, [&] { peers.hear(kNow); }).reach == Reach::kAnswers);
}

TEST_CASE("A dial that fails at once is repeated after a while, and not without a pause") {
  const LoopbackRanks ranks(2);
  const RankRoster own = with_addresses(ranks, {kLoopback, kOther}, 1);
  Dialer dialer(own);
  const NoDescriptors none;
  dialer.dial(0, kNow, kLimit);
  for (LivenessTime now = kNow; now < kNow + kLimit;) {
    CHECK(dialer.hear(now).empty());
    CHECK_FALSE(is_readable(dialer.descriptor()));
    REQUIRE(dialer.wakes_at() > now);
    now = *dialer.wakes_at();
  }
  CHECK(answer(dialer, kNow + kLimit).reach == Reach::kUnreachable);
}

TEST_CASE("Ranks that dial a busy rank of several addresses do not look like strangers") {
  constexpr int kRanks = 16;
  const LoopbackRanks ranks(kRanks);
  std::vector<std::string> addresses;
  for (int i = 1; i <= 5; ++i) addresses.push_back(fmt::format("127.0.1.{}", i));
  Listener listener(addresses);
  std::vector<RankRoster> rosters;
  for (int rank = 1; rank < kRanks; ++rank) {
    rosters.push_back(with_addresses(ranks, addresses, listener.port()));
    rosters.back().own = rank;
  }
  std::vector<std::unique_ptr<Dialer>> dialers;
  for (const RankRoster& own : rosters) {
    dialers.push_back(std::make_unique<Dialer>(own));
    dialers.back()->dial(0, kNow, seconds(20));
  }
  std::vector<Dialer::Answer> answers;
  LivenessTime now = kNow;
  const auto hear_all = [&] {
    for (const auto& dialer : dialers) {
      for (Dialer::Answer& one : dialer->hear(now)) answers.push_back(std::move(one));
    }
  };
  const int busy = GENERATE(0, 4000);
  for (; now < kNow + milliseconds(busy); now += milliseconds(50)) hear_all();
  RankPeers peers(std::move(listener), ranks.roster(0).credentials());
  wait_until([&] {
    hear_all();
    CHECK(peers.hear(now).empty());
    now += milliseconds(5);
    return answers.size() == dialers.size();
  });
  for (const Dialer::Answer& one : answers) CHECK(one.reach == Reach::kAnswers);
  CHECK(peers.take_warning(now).empty());
}

TEST_CASE("A rank that answers at two addresses at once gets one connection, and loses none") {
  LoopbackRanks ranks(2);
  const std::string other_address = "127.0.0.2";
  Listener listener({kLoopback, other_address});
  RankRoster own = ranks.roster(1);
  own.ranks[0].addresses = {other_address};
  own.ranks[0].port = listener.port();
  Dialer dialer(own);
  dialer.dial(0, kNow, kLimit);
  // It is busy for so long that the other address is tried, too.
  LivenessTime now = kNow;
  wait_until([&] {
    CHECK(dialer.hear(now).empty());
    now += milliseconds(50);
    const std::vector<int> sockets = listener.descriptors();
    return std::all_of(sockets.begin(), sockets.end(), [](int one) { return is_readable(one); });
  });
  CHECK(dialer.hear(now).empty());
  RankPeers peers(std::move(listener), ranks.roster(0).credentials());
  wait_until([&] { return peers.hear(now).empty() && peers.num_unidentified() == 2; });
  // Both have challenged this rank. Once it has answered one, the other does not keep its thread awake.
  wait_until([&] {
    std::array<epoll_event, 4> ready{};
    return epoll_wait(dialer.descriptor(), ready.data(), static_cast<int>(ready.size()), 0) == 2;
  });
  CHECK(dialer.hear(now).empty());
  CHECK_FALSE(is_readable(dialer.descriptor()));
  const Dialer::Answer found = answer(dialer, now, [&] { CHECK(peers.hear(now).empty()); });
  CHECK(found.reach == Reach::kAnswers);
  wait_until([&] {
    CHECK(peers.hear(now).empty());
    return peers.num_unidentified() == 0;
  });
  CHECK(peers.num_connected() == 1);
}

TEST_CASE("A rank whose process has ended refuses") {
  LoopbackRanks ranks(2);
  ranks.end(0);
  const RankRoster own = ranks.roster(1);
  Dialer dialer(own);
  dialer.dial(0, kNow, kLimit);
  CHECK(answer(dialer).reach == Reach::kRefused);
}

TEST_CASE("At the limit a rank that accepts is mute, and one whose machine does not answer is unreachable") {
  LoopbackRanks ranks(3);
  const Listener listener = ranks.take_listener(0);
  RankRoster own = ranks.roster(2);
  own.ranks[1].machine = "another";
  own.ranks[1].addresses = {kLoopback};
  const SilentPort port;
  own.ranks[1].port = port.number();
  Dialer dialer(own);
  dialer.dial(0, kNow, kLimit);
  dialer.dial(1, kNow, kLimit);
  // The system has accepted the connection to rank 0, whose process does not take it.
  wait_readable(listener.descriptors().front());
  CHECK(dialer.hear(kNow).empty());
  CHECK(dialer.hear(kNow + kLimit - milliseconds(1)).empty());
  const auto answers = dialer.hear(kNow + kLimit);
  REQUIRE(answers.size() == 2);
  CHECK((answers[0].rank == 0 && answers[0].reach == Reach::kMute));
  CHECK((answers[1].rank == 1 && answers[1].reach == Reach::kUnreachable));
}

TEST_CASE("A rank without an address for other machines is unreachable at once") {
  LoopbackRanks ranks(2);
  RankRoster own = ranks.roster(1);
  own.ranks[0].machine = "another";
  Dialer dialer(own);
  dialer.dial(0, kNow, kLimit);
  const Dialer::Answer found = answer(dialer);
  CHECK(found.reach == Reach::kUnreachable);
  CHECK(found.why == "rank 0 has no address that another machine can reach");
}

TEST_CASE("A connection that the other side closes too early is opened again after a short time") {
  LoopbackRanks ranks(2);
  const RankRoster own = ranks.roster(1);
  const RankRoster other = ranks.roster(0);
  Listener listener = ranks.take_listener(0);
  Dialer dialer(own);
  dialer.dial(0, kNow, kLimit);
  // As when too many connect.
  wait_readable(listener.descriptors().front());
  listener.accept();
  wait_until([&] {
    CHECK(dialer.hear(kNow).empty());
    return dialer.wakes_at() < kNow + kLimit;
  });
  CHECK(*dialer.wakes_at() >= kNow + milliseconds(50));
  CHECK(*dialer.wakes_at() <= kNow + milliseconds(150));
  RankPeers peers(std::move(listener), other.credentials());
  CHECK(answer(dialer, kNow + milliseconds(150), [&] { peers.hear(kNow); }).reach == Reach::kAnswers);
}

TEST_CASE("A rank that closes the connection before it has identified this one is dialed again") {
  LoopbackRanks ranks(2);
  const RankRoster own = ranks.roster(1);
  const RankRoster other = ranks.roster(0);
  Listener listener = ranks.take_listener(0);
  Dialer dialer(own);
  dialer.dial(0, kNow, kLimit);
  wait_readable(listener.descriptors().front());
  {
    RankConnection first =
        RankConnection::from(listener.accept().connection.value(), other.credentials(), LivenessClock::now());
    wait_until([&] {
      CHECK(dialer.hear(kNow).empty());
      first.receive();
      return first.state() == RankConnection::State::kChallenged;
    });
  }
  // It has proved to this rank who it is, and is closed.
  wait_until([&] {
    CHECK(dialer.hear(kNow).empty());
    return dialer.wakes_at() < kNow + kLimit;
  });
  RankPeers peers(std::move(listener), other.credentials());
  CHECK(answer(dialer, kNow + milliseconds(150), [&] { peers.hear(kNow); }).reach == Reach::kAnswers);
  CHECK(peers.num_introduced() == 1);
}

TEST_CASE("A rank that is no longer dialed learns that this one visited it, and not that it ended") {
  const bool at_limit = GENERATE(false, true);
  LoopbackRanks ranks(2);
  const RankRoster own = ranks.roster(1);
  const RankRoster other = ranks.roster(0);
  Listener listener = ranks.take_listener(0);
  Dialer dialer(own);
  dialer.dial(0, kNow, kLimit);
  wait_readable(listener.descriptors().front());
  RankConnection visited =
      RankConnection::from(listener.accept().connection.value(), other.credentials(), LivenessClock::now());
  wait_until([&] {
    CHECK(dialer.hear(kNow).empty());
    visited.receive();
    return visited.is_identified();
  });
  if (at_limit) {
    CHECK(answer(dialer, kNow + kLimit).reach == Reach::kMute);
  } else {
    dialer.hang_up(0);
  }
  const std::optional<message::Any> message = next_message(visited);
  REQUIRE(message);
  CHECK(std::holds_alternative<message::Visit>(*message));
}

TEST_CASE("Ranks that overfill the queue of connections, so that the system drops some, all get in", "[own_network]") {
  constexpr int kRanks = 33;
  constexpr seconds kMeeting(20);
  std::vector<Reach> reached;
  const bool has_run = in_own_network("ip link set lo up && echo 2 > /proc/sys/net/core/somaxconn", [&] {
    LoopbackRanks ranks(kRanks);
    std::vector<RankRoster> rosters;
    for (int rank = 0; rank < kRanks; ++rank) rosters.push_back(ranks.roster(rank));
    std::vector<std::unique_ptr<Dialer>> dialers;
    for (int rank = 1; rank < kRanks; ++rank) {
      dialers.push_back(std::make_unique<Dialer>(rosters[static_cast<size_t>(rank)]));
      dialers.back()->dial(0, LivenessClock::now(), kMeeting);
    }
    // All of them have asked to connect before the first one is accepted.
    RankPeers peers(ranks.take_listener(0), rosters.front().credentials());
    std::vector<Dialer::Answer> answers;
    while (answers.size() < dialers.size()) {
      peers.hear(LivenessClock::now());
      for (const auto& dialer : dialers) {
        for (Dialer::Answer& one : dialer->hear(LivenessClock::now())) answers.push_back(std::move(one));
      }
    }
    for (const Dialer::Answer& one : answers) reached.push_back(one.reach);
  });
  if (has_run) CHECK(reached == std::vector<Reach>(kRanks - 1, Reach::kAnswers));
}

TEST_CASE("Ranks that were turned away at the same time come again at different times") {
  LoopbackRanks ranks(9);
  Listener listener = ranks.take_listener(0);
  std::set<LivenessTime> times;
  for (int rank = 1; rank < 9; ++rank) {
    const RankRoster own = ranks.roster(rank);
    Dialer dialer(own);
    dialer.dial(0, kNow, kLimit);
    wait_readable(listener.descriptors().front());
    listener.accept();
    wait_until([&] {
      CHECK(dialer.hear(kNow).empty());
      return dialer.wakes_at() < kNow + kLimit;
    });
    times.insert(*dialer.wakes_at());
  }
  CHECK(times.size() > 4);
}

TEST_CASE("A process that answers in a rank's place without the secret is reported, and learns nothing") {
  LoopbackRanks ranks(2);
  Listener other({kLoopback});
  RankRoster own = ranks.roster(1);
  own.ranks[0].port = other.port();
  Dialer dialer(own);
  dialer.dial(0, kNow, kLimit);
  CHECK(dialer.hear(kNow).empty());
  wait_readable(other.descriptors().front());
  LineConnection connection = other.accept().connection.value();
  const std::string nonce(kHexDigits, '0');
  connection.send("challenge " + nonce + " " + nonce);
  const Dialer::Answer found = answer(dialer);
  CHECK(found.reach == Reach::kMute);
  CHECK(found.warning ==
        fmt::format("has closed its connection to rank 0 on {} (port {}), because it does not know this "
                    "run's secret",
                    own.identity(0).host, other.port()));
  std::vector<std::string> heard;
  wait_until([&] {
    const auto lines = connection.receive();
    if (lines) heard.insert(heard.end(), lines->begin(), lines->end());
    return !lines;
  });
  REQUIRE(heard.size() == 1);
  CHECK_THAT(heard.front(), Catch::StartsWith("hello 1 "));
}

}  // namespace mpzero
