#pragma once

#include <optional>
#include <string>

#include "app/liveness/control_channel.hpp"
#include "app/liveness/rank_roster.hpp"
#include "base/process_group.hpp"

namespace mpzero {

// The ranks of a run once they know each other.
struct RankMeeting {
  RankRoster roster;
  // Why they do not watch each other, in one sentence that is the same on all; empty: they do.
  std::string warning;
  // Where others connect to, unless there is a warning.
  std::optional<Listener> listener;
  // To rank 0, which all others report to first; not on that rank itself, nor where there is a warning.
  std::optional<LineConnection> monitor;
};

// Collective. The ranks tell each other who and where they are; then each connects to rank 0.
RankMeeting meet(ProcessGroup& group);

}  // namespace mpzero
