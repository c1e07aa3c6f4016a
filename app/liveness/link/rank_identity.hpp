#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

struct ifaddrs;

namespace mpzero {

// Who a rank is.
struct RankIdentity {
  int rank = 0;
  std::string host;     // Slurm's name of the node where there is one
  std::string machine;  // the kernel's name of it
  int64_t pid = 0;
  int64_t started = 0;  // when the process was, in the kernel's clock ticks: tells it from a later one of the same pid
  int port = 0;         // where it listens for other ranks
  std::vector<std::string> addresses;  // the likeliest first; IPv6 where there is no IPv4
};

void to_json(nlohmann::json& json, const RankIdentity& identity);
void from_json(const nlohmann::json& json, RankIdentity& identity);

// Where ranks of one machine reach each other.
inline constexpr const char* kLoopback = "127.0.0.1";

// Of the interfaces in the system's list those under which other machines reach this one: IPv4, or global IPv6 where
// there is none.
std::vector<std::string> addresses_for_others(const ifaddrs* list);
// This process; addresses are those of its network interfaces.
RankIdentity this_process(int rank, int port);
// Every address under which other ranks may turn to it, the likeliest first: `from_same_machine`, over the loopback
// interface, too.
std::vector<std::string> told_addresses(const RankIdentity& identity, bool from_same_machine);
// Ends the process if it still runs on this machine.
void kill_process(const RankIdentity& identity);

}  // namespace mpzero
