#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "app/liveness/link/handshake.hpp"
#include "app/liveness/link/rank_connection.hpp"
#include "app/liveness/link/rank_identity.hpp"

namespace mpzero {

// Who takes part in a run, as this rank sees it.
struct RankRoster {
  int own = 0;                      // this rank
  std::vector<RankIdentity> ranks;  // all, by rank
  HashBytes secret{};               // tells ranks of this run from whoever else connects

  int size() const { return static_cast<int>(ranks.size()); }
  const RankIdentity& identity(int rank) const { return ranks.at(static_cast<size_t>(rank)); }
  RankCredentials credentials() const { return {.own = own, .world_size = size(), .secret = secret}; }
};

// Connects this rank to another and says hello; nothing where none of the other's addresses answers, each within
// `limit`. Whether it is that rank which answers is still to be heard. Each `attempt`, from 0, begins with the address
// behind the one before.
std::optional<RankConnection> connect_to_rank(const RankRoster& roster, int rank, std::chrono::milliseconds limit,
                                              LivenessTime now, size_t attempt = 0);

// Ends those of these processes that are on this machine.
void kill_ranks(const RankRoster& roster, const std::vector<int>& ranks);

}  // namespace mpzero
