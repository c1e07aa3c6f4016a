#include "app/liveness/link/rank_roster.hpp"

#include <utility>

namespace mpzero {

std::optional<RankConnection> connect_to_rank(const RankRoster& roster, int rank, std::chrono::milliseconds limit,
                                              LivenessTime now, size_t attempt) {
  const RankIdentity& to = roster.identity(rank);
  const bool same_machine = to.machine == roster.identity(roster.own).machine;
  const std::vector<std::string> addresses = reported_addresses(to, same_machine);
  for (size_t i = 0; i < addresses.size(); ++i) {
    const std::string& address = addresses[(attempt + i) % addresses.size()];
    std::optional<LineConnection> line = connect_to(address, to.port, limit);
    if (line) return RankConnection::to(std::move(*line), roster.credentials(), rank, now);
  }
  return std::nullopt;
}

void kill_ranks(const RankRoster& roster, const std::vector<int>& ranks) {
  for (const int rank : ranks) kill_process(roster.identity(rank));
}

}  // namespace mpzero
