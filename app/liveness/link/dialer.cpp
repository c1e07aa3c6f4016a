#include "app/liveness/link/dialer.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "app/liveness/link/strangers.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

using message::Reach;
using std::chrono::milliseconds;

constexpr milliseconds kSoonest(50);
constexpr milliseconds kLatest(150);
// Between two addresses of a rank, and after one has accepted.
constexpr milliseconds kPause(250);
constexpr milliseconds kPatience(1000);

}  // namespace

Dialer::Dialer(const RankRoster& roster)
    : roster_(roster), epoll_(epoll_create1(EPOLL_CLOEXEC)), random_(static_cast<unsigned>(roster.own) + 1) {
  if (!epoll_) throw_failure("epoll failed: {}", std::strerror(errno));
}

std::optional<LivenessTime> Dialer::wakes_at() const {
  std::optional<LivenessTime> first;
  const auto take = [&](LivenessTime when) { first = std::min(first.value_or(when), when); };
  for (const auto& [rank, call] : calls_) {
    take(call.until);
    if (std::any_of(call.attempts.begin(), call.attempts.end(), is_identified)) continue;
    for (const Attempt& attempt : call.attempts) {
      if (attempt.state == State::kWaits) take(attempt.again);
      if (attempt.state == State::kInLine) take(call.next);
    }
  }
  return first;
}

// Ranks that connect at the same time, and find no room, do not come again at the same time.
LivenessTime Dialer::soon(LivenessTime now) {
  return now + milliseconds(std::uniform_int_distribution<int64_t>(kSoonest.count(), kLatest.count())(random_));
}

void Dialer::watch(int descriptor, uint32_t events, int operation) {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  epoll_ctl(epoll_.get(), operation, descriptor, &event);
}

void Dialer::dial(int rank, LivenessTime now, LivenessClock::duration limit) {
  const RankIdentity& to = roster_.identity(rank);
  const bool same_machine = to.machine == roster_.identity(roster_.own).machine;
  const std::vector<std::string> addresses = reported_addresses(to, same_machine);
  const auto count = static_cast<int64_t>(std::max<size_t>(addresses.size(), 1));
  Call& call = calls_[rank];
  call = Call{.attempts = {},
              .until = now + limit,
              .next = now,
              .pause = std::min<LivenessClock::duration>(kPause, limit / (2 * count)),
              .why = "nothing answers there",
              .warning = {}};
  for (const std::string& address : addresses) {
    call.attempts.push_back({.address = address, .socket = Descriptor(), .connection = {}, .again = {}});
  }
  if (call.attempts.empty()) call.why = fmt::format("rank {} has no address that another machine can reach", rank);
  connect_next(rank, call, now);
}

void Dialer::connect_next(int rank, Call& call, LivenessTime now) {
  for (Attempt& attempt : call.attempts) {
    if (now < call.next) return;
    if (attempt.state != State::kInLine) continue;
    call.next = now + call.pause;
    connect(rank, call, attempt, now);
  }
}

void Dialer::connect(int rank, Call& call, Attempt& attempt, LivenessTime now) {
  const std::optional<SocketAddress> to = socket_address(attempt.address, roster_.identity(rank).port);
  attempt.connection.reset();
  attempt.socket = to ? make_socket(to->family()) : Descriptor();
  attempt.state = State::kConnects;
  attempt.tried = attempt.tried || attempt.socket;
  const bool begun =
      attempt.socket && (::connect(attempt.socket.get(), to->get(), to->length) == 0 || errno == EINPROGRESS);
  if (begun) {
    watch(attempt.socket.get(), EPOLLOUT, EPOLL_CTL_ADD);
  } else {
    wait(call, attempt, now);
  }
}

void Dialer::wait(Call& call, Attempt& attempt, LivenessTime now) {
  attempt.socket = Descriptor();
  attempt.connection.reset();
  attempt.answers = false;
  attempt.state = State::kWaits;
  attempt.again = soon(now);
  call.next = now;
}

void Dialer::advance(int rank, Call& call, LivenessTime now) {
  const auto identified = std::find_if(call.attempts.begin(), call.attempts.end(), is_identified);
  if (identified != call.attempts.end()) return shake_hands(rank, call, *identified, now);
  for (Attempt& attempt : call.attempts) {
    advance(rank, call, attempt, now);
    if (is_identified(attempt)) return keep_only(call, attempt);
  }
  connect_next(rank, call, now);
}

void Dialer::advance(int rank, Call& call, Attempt& attempt, LivenessTime now) {
  if (attempt.state == State::kWaits && now >= attempt.again) connect(rank, call, attempt, now);
  if (attempt.state == State::kConnects) finish_connect(rank, call, attempt, now);
  if (attempt.state == State::kShakesHands) shake_hands(rank, call, attempt, now);
}

// The rank there has not identified this one at the other addresses, because none of them has sent a proof: it does not
// think that this rank has ended when they are closed. Later, two could be identified at once.
void Dialer::keep_only(Call& call, const Attempt& identified) {
  for (Attempt& attempt : call.attempts) {
    if (&attempt == &identified || attempt.state == State::kRefused) continue;
    attempt.socket = Descriptor();
    attempt.connection.reset();
    attempt.state = State::kInLine;
  }
}

void Dialer::finish_connect(int rank, Call& call, Attempt& attempt, LivenessTime now) {
  pollfd wanted{.fd = attempt.socket.get(), .events = POLLOUT, .revents = 0};
  if (poll(&wanted, 1, 0) != 1) return;
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(attempt.socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) {
    // A network that is cut may report so, which says nothing about the rank.
    wait(call, attempt, now);
    if (error == ECONNREFUSED) attempt.state = State::kRefused;
    return;
  }
  call.accepted = true;
  call.next = now + kPatience;
  watch(attempt.socket.get(), EPOLLIN, EPOLL_CTL_MOD);
  attempt.connection =
      RankConnection::to(LineConnection(std::exchange(attempt.socket, Descriptor())), roster_.credentials(), rank, now);
  attempt.state = State::kShakesHands;
}

void Dialer::shake_hands(int rank, Call& call, Attempt& attempt, LivenessTime now) {
  RankConnection& connection = *attempt.connection;
  attempt.answers = connection.greet();
  connection.look_at_clock(now);
  if (connection.state() != RankConnection::State::kClosed) return;
  const Handshake::Refusal why = connection.refusal();
  call.why = describe(why);
  wait(call, attempt, now);
  if (why == Handshake::Refusal::kClosed || why == Handshake::Refusal::kTooLate) return;
  attempt.state = State::kRefused;
  const RankIdentity& to = roster_.identity(rank);
  call.warning =
      fmt::format("has closed its connection to rank {} on {} (port {}), because {}", rank, to.host, to.port, call.why);
}

std::optional<Dialer::Answer> Dialer::outcome(int rank, Call& call, LivenessTime now) {
  const auto answer = [&](Reach reach, std::optional<RankConnection> connection = std::nullopt) {
    return Answer{
        .rank = rank, .reach = reach, .connection = std::move(connection), .why = call.why, .warning = call.warning};
  };
  bool all_refused = true;
  for (Attempt& attempt : call.attempts) {
    if (attempt.answers) {
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, attempt.connection->descriptor(), nullptr);
      return answer(Reach::kAnswers, std::move(attempt.connection));
    }
    all_refused = all_refused && attempt.state == State::kRefused;
  }
  if (call.attempts.empty()) return answer(Reach::kUnreachable);
  if (all_refused) return answer(call.warning.empty() ? Reach::kRefused : Reach::kMute);
  if (now < call.until) return std::nullopt;
  Answer late = answer(call.accepted ? Reach::kMute : Reach::kUnreachable);
  late.tried = std::any_of(call.attempts.begin(), call.attempts.end(), [](const Attempt& one) { return one.tried; });
  return late;
}

void Dialer::hang_up(int rank) {
  const auto call = calls_.find(rank);
  if (call == calls_.end()) return;
  take_leave(call->second);
  calls_.erase(call);
}

std::vector<RankConnection> Dialer::take_identified() {
  std::vector<RankConnection> identified;
  for (auto& [rank, call] : calls_) {
    for (Attempt& attempt : call.attempts) {
      if (is_identified(attempt)) identified.push_back(std::move(*attempt.connection));
    }
  }
  calls_.clear();
  return identified;
}

// The rank there may have identified this one, and is not to think that it has ended.
void Dialer::take_leave(Call& call) {
  for (Attempt& attempt : call.attempts) {
    if (is_identified(attempt)) attempt.connection->send(message::to_line(message::Visit{}));
  }
}

std::vector<Dialer::Answer> Dialer::hear(LivenessTime now) {
  std::vector<Answer> answers;
  for (auto one = calls_.begin(); one != calls_.end();) {
    auto& [rank, call] = *one;
    advance(rank, call, now);
    std::optional<Answer> answer = outcome(rank, call, now);
    if (answer && !answer->connection) take_leave(call);
    if (answer) answers.push_back(std::move(*answer));
    one = answer ? calls_.erase(one) : std::next(one);
  }
  return answers;
}

}  // namespace mpzero
