#include "app/liveness/link/rank_meeting.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "app/liveness/link/strangers.hpp"
#include "base/collectives.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

using std::chrono::milliseconds;

// Time for one address to answer, and for reaching rank 0 at all.
constexpr milliseconds kConnectLimit(3000);
constexpr milliseconds kMeetingLimit(10'000);
constexpr milliseconds kRetryAfter(50);
constexpr milliseconds kTurn(10);

// Raises the limit of open files, so that connections leave enough of them for a save: those of the ranks (any rank may
// come to monitor all others), of strangers until they are identified as such, and of NCCL. The soft limit is often
// 1,024 at first. It is never lowered.
void allow_connections(int world_size) {
  constexpr rlim_t kEnough = 65'536;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  const rlim_t wanted = std::min(std::max(kEnough, static_cast<rlim_t>(world_size) * 4), files.rlim_max);
  if (files.rlim_cur >= wanted) return;
  files.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &files);
}

// Listens for the other ranks; a single rank needs no listener. Throws Failure.
Listener open_listener(const RankIdentity& self, int world_size) {
  return Listener(world_size == 1 ? std::vector<std::string>{} : reported_addresses(self, /*from_same_machine=*/true));
}

// The secret is sent through MPI: anyone who can read that traffic can also read everything that is trained.
RankRoster introduce(ProcessGroup& group, const RankIdentity& self) {
  return {.own = group.rank(),
          .ranks = all_gather(group, self),
          .secret = broadcast(group, group.rank() == 0 ? random_bytes() : HashBytes{})};
}

// Waits until the other side is identified, or turns out not to be the expected rank.
void identify(RankConnection& connection) {
  while (connection.state() == RankConnection::State::kUnidentified) {
    pollfd wanted{.fd = connection.descriptor(), .events = POLLIN, .revents = 0};
    poll(&wanted, 1, static_cast<int>(kTurn.count()));
    connection.look_at_clock(LivenessClock::now());
    connection.receive();
  }
}

// A connection to rank 0; or std::nullopt, and `why` completes "cannot reach rank 0, because".
std::optional<RankConnection> reach_monitor(const RankRoster& roster, std::string& why) {
  const RankIdentity& to = roster.identity(0);
  size_t others = reported_addresses(to, to.machine == roster.identity(roster.own).machine).size();
  why = others == 0 ? "rank 0 has no address that another machine can reach" : "nothing answers there";
  const LivenessTime start = LivenessClock::now();
  for (size_t attempt = 0; others > 0 && LivenessClock::now() - start < kMeetingLimit; ++attempt) {
    std::optional<RankConnection> connection = connect_to_rank(roster, 0, kConnectLimit, LivenessClock::now(), attempt);
    if (!connection) {
      why = "nothing answers there";
      break;
    }
    identify(*connection);
    if (connection->is_identified()) return connection;
    const Handshake::Refusal refusal = connection->refusal();
    why = describe(refusal);
    if (refusal == Handshake::Refusal::kWrongSecret || refusal == Handshake::Refusal::kNotOurs) {
      --others;  // what answers there is not rank 0
    } else {
      // If many connect at the same time, rank 0 may have had no room.
      std::this_thread::sleep_for(kRetryAfter);
    }
  }
  return std::nullopt;
}

// Receives the other ranks' messages while this rank waits for them.
class Reception {
 public:
  explicit Reception(RankPeers& peers) : thread_([&peers](const std::stop_token& stop) { run(peers, stop); }) {}

 private:
  static void run(RankPeers& peers, const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd wanted{.fd = peers.descriptor(), .events = POLLIN, .revents = 0};
      poll(&wanted, 1, static_cast<int>(kTurn.count()));
      peers.take_in(LivenessClock::now());
    }
  }
  std::jthread thread_;
};

// Why this rank cannot reach rank 0, in one sentence. Empty: it can, and keeps the connection.
std::string reach_monitor(RankMeeting& meeting) {
  const RankRoster& roster = meeting.roster;
  std::string why;
  meeting.monitor = reach_monitor(roster, why);
  if (meeting.monitor) return {};
  const RankIdentity& to = roster.identity(0);
  return fmt::format(
      "rank {} on {} cannot reach rank 0 on {} over TCP (port {}), because {}; allow the nodes of a job to connect to "
      "each other on every port",
      roster.own, roster.identity(roster.own).host, to.host, to.port, why);
}

}  // namespace

RankMeeting meet(ProcessGroup& group) {
  allow_connections(group.world_size());
  RankMeeting meeting;
  std::string problem;
  std::optional<Listener> listener;
  RankIdentity self = this_process(group.rank(), 0);
  try {
    listener = open_listener(self, group.world_size());
    self.port = listener->port();
  } catch (const Error& error) {
    problem = fmt::format("rank {} on {}: {}", self.rank, self.host, error.what());
  }
  meeting.roster = introduce(group, self);
  std::optional<Reception> reception;
  if (problem.empty()) {
    meeting.peers.emplace(std::move(*listener), meeting.roster.credentials());
    if (group.rank() == 0) {
      reception.emplace(*meeting.peers);
    } else {
      problem = reach_monitor(meeting);
    }
  }
  const std::vector<std::string> problems = all_gather(group, problem);
  reception.reset();
  for (const std::string& text : problems) {
    if (text.empty()) continue;
    meeting.warning =
        fmt::format("the ranks do not watch each other, so a rank that hangs will not be noticed: {}.", text);
    meeting.monitor.reset();
    meeting.peers.reset();
    break;
  }
  return meeting;
}

}  // namespace mpzero
