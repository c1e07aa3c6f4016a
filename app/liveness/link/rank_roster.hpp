#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "app/liveness/link/handshake.hpp"
#include "app/liveness/link/rank_connection.hpp"
#include "app/liveness/link/rank_identity.hpp"

namespace mpzero {

// The ranks that take part in a run, as this rank sees them.
struct RankRoster {
  int own = 0;                      // this rank
  std::vector<RankIdentity> ranks;  // all, by rank
  HashBytes secret{};               // distinguishes ranks of this run from others that connect

  int size() const { return static_cast<int>(ranks.size()); }
  const RankIdentity& identity(int rank) const { return ranks.at(static_cast<size_t>(rank)); }
  RankCredentials credentials() const { return {.own = own, .world_size = size(), .secret = secret}; }
};

// Connects this rank to another and sends hello; std::nullopt if none of the other's addresses answers, each within
// `limit`. Whether that rank is the one that answers shows only in the handshake. Each `attempt`, from 0, begins with
// the next address.
std::optional<RankConnection> connect_to_rank(const RankRoster& roster, int rank, std::chrono::milliseconds limit,
                                              LivenessTime now, size_t attempt = 0);

// Kills those of these processes that are on this machine.
void kill_ranks(const RankRoster& roster, const std::vector<int>& ranks);

}  // namespace mpzero
