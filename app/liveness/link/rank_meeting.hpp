#pragma once

#include <optional>
#include <string>

#include "app/liveness/link/rank_connection.hpp"
#include "app/liveness/link/rank_peers.hpp"
#include "app/liveness/link/rank_roster.hpp"
#include "base/process_group.hpp"

namespace mpzero {

// The ranks of a run once they know each other.
struct RankMeeting {
  RankRoster roster;
  // Why they do not watch each other, in one sentence that is the same on all; empty: they do.
  std::string warning;
  // Where others connect to, unless there is a warning; on rank 0 they have.
  std::optional<RankPeers> peers;
  // To rank 0, which all others report to first: each has proved to the other who it is. Not on rank 0 itself, nor
  // where there is a warning.
  std::optional<RankConnection> monitor;
};

// Collective. The ranks tell each other who and where they are; then each connects to rank 0, which hears them
// meanwhile: one message there, one back and one there, beside those of TCP.
RankMeeting meet(ProcessGroup& group);

}  // namespace mpzero
