#include "app/liveness/link/rank_meeting.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <stop_token>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "app/liveness/link/dialer.hpp"
#include "base/collectives.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

using std::chrono::milliseconds;

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
  if (world_size == 1) return Listener({});
  std::vector<std::string> addresses = reported_addresses(self, /*from_same_machine=*/true);
  // A machine has one of the two loopback addresses, or both.
  std::erase_if(addresses, [](const std::string& address) { return !can_listen_on(address); });
  return Listener(addresses);
}

// The secret is sent through MPI: anyone who can read that traffic can also read everything that is trained.
RankRoster introduce(ProcessGroup& group, const RankIdentity& self) {
  RankRoster roster{.own = group.rank(), .ranks = all_gather(group, self)};
  std::tie(roster.secret, roster.started) =
      broadcast(group, std::pair(group.rank() == 0 ? random_bytes() : HashBytes{}, int64_t{std::time(nullptr)}));
  return roster;
}

// A connection to rank 0; or std::nullopt, and `why` completes "cannot reach rank 0, because".
std::optional<RankConnection> reach_monitor(const RankRoster& roster, const MeetingLimits& limits, std::string& why) {
  Dialer dialer(roster);
  const LivenessTime start = LivenessClock::now();
  dialer.dial(0, start, limits.connect);
  bool has_accepted = false;
  while (true) {
    const LivenessTime now = LivenessClock::now();
    std::vector<Dialer::Answer> answers = dialer.hear(now);
    if (!answers.empty()) {
      Dialer::Answer& answer = answers.front();
      // While rank 0 stalls, the queue of its connections fills up, and its machine accepts none any more.
      has_accepted = has_accepted || answer.reach == message::Reach::kMute;
      const bool may_stall = answer.reach == message::Reach::kMute || answer.reach == message::Reach::kUnreachable;
      const bool stalls = has_accepted && may_stall && answer.warning.empty();
      if (!stalls || now - start >= limits.stall) {
        why = answer.why;
        return std::move(answer.connection);
      }
      dialer.dial(0, now, limits.connect);
    }
    pollfd wanted{.fd = dialer.descriptor(), .events = POLLIN, .revents = 0};
    poll(&wanted, 1, static_cast<int>(kTurn.count()));
  }
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
std::string reach_monitor(RankMeeting& meeting, const MeetingLimits& limits) {
  const RankRoster& roster = meeting.roster;
  std::string why;
  meeting.monitor = reach_monitor(roster, limits, why);
  if (meeting.monitor) return {};
  const RankIdentity& to = roster.identity(0);
  return fmt::format(
      "rank {} on {} cannot reach rank 0 on {} over TCP (port {}), because {}; allow the nodes of a job to connect to "
      "each other on every port",
      roster.own, roster.identity(roster.own).host, to.host, to.port, why);
}

}  // namespace

RankMeeting meet(ProcessGroup& group, const MeetingLimits& limits) {
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
      problem = reach_monitor(meeting, limits);
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
