#include "app/liveness/rank_roster.hpp"

#include "app/liveness/rank_message.hpp"

namespace mpzero {

std::optional<LineConnection> connect_to_rank(const RankRoster& roster, int rank, std::chrono::milliseconds limit) {
  const RankIdentity& to = roster.identity(rank);
  const std::string loopback = "127.0.0.1";
  std::vector<std::string> addresses;
  if (to.machine == roster.identity(roster.own).machine) addresses.push_back(loopback);
  addresses.insert(addresses.end(), to.addresses.begin(), to.addresses.end());
  for (const std::string& address : addresses) {
    std::optional<LineConnection> connection = connect_to(address, to.port, limit);
    if (!connection) continue;
    connection->send(message::to_line(message::Hello{.token = roster.token, .rank = roster.own}));
    return connection;
  }
  return std::nullopt;
}

void kill_ranks(const RankRoster& roster, const std::vector<int>& ranks) {
  for (const int rank : ranks) kill_process(roster.identity(rank));
}

}  // namespace mpzero
