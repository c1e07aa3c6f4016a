#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "app/liveness/control_channel.hpp"
#include "app/liveness/rank_identity.hpp"

namespace mpzero {

// Who takes part in a run, as this rank sees it.
struct RankRoster {
  int own = 0;                      // this rank
  std::vector<RankIdentity> ranks;  // all, by rank
  std::string token;                // tells ranks of this run from whoever else connects

  int size() const { return static_cast<int>(ranks.size()); }
  const RankIdentity& identity(int rank) const { return ranks.at(static_cast<size_t>(rank)); }
};

// Connects this rank to another and says who it is; nothing where none of the other's addresses answers, each within
// `limit`.
std::optional<LineConnection> connect_to_rank(const RankRoster& roster, int rank, std::chrono::milliseconds limit);

// Ends those of these processes that are on this machine.
void kill_ranks(const RankRoster& roster, const std::vector<int>& ranks);

}  // namespace mpzero
