#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "app/liveness/link/clock.hpp"
#include "app/liveness/link/dialer.hpp"
#include "app/liveness/link/rank_connection.hpp"
#include "app/liveness/link/rank_peers.hpp"
#include "base/process_group.hpp"

namespace mpzero {

// The ranks of a run once they know each other.
struct RankMeeting {
  RankRoster roster;
  // Why the ranks do not watch each other, in one sentence that is the same on all ranks. Empty: they do.
  std::string warning;
  // Where other ranks connect to; none if there is a warning. On rank 0 all others are connected.
  std::optional<RankPeers> peers;
  // The connection to rank 0, which all others report to at first. Both sides are identified. None on rank 0 itself, or
  // if there is a warning.
  std::optional<RankConnection> monitor;
};

struct MeetingLimits {
  // Time to reach rank 0. If more ranks connect at once than the system keeps waiting (net.core.somaxconn, often
  // 4,096), TCP asks again after 1, 3 and 7 s.
  LivenessClock::duration connect = std::chrono::seconds(20);
  // The same where rank 0's machine has accepted a connection, and rank 0 does not answer: its process stalls. The next
  // collective waits for it in any case.
  LivenessClock::duration stall = std::chrono::seconds(120);
};

// Collective. The ranks exchange their identities and addresses. Then each connects to rank 0, which listens meanwhile:
// two messages there and two back, in addition to those of TCP.
RankMeeting meet(ProcessGroup& group, const MeetingLimits& limits = {});

}  // namespace mpzero
