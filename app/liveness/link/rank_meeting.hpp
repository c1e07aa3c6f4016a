#pragma once

#include <optional>
#include <string>

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

// Collective. The ranks exchange their identities and addresses. Then each connects to rank 0, which listens meanwhile:
// two messages there and two back, in addition to those of TCP.
RankMeeting meet(ProcessGroup& group);

}  // namespace mpzero
