#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

struct ifaddrs;

namespace mpzero {

// Identifies a rank's process.
struct RankIdentity {
  int rank = 0;
  std::string host;     // Slurm's name of the node, if there is one
  std::string machine;  // the kernel's name of the node
  int64_t pid = 0;
  int64_t started = 0;  // start time in the kernel's clock ticks: distinguishes it from a later process of the same pid
  int port = 0;         // where it listens for other ranks
  std::vector<std::string> addresses;  // the likeliest first; IPv6 if there is no IPv4
};

void to_json(nlohmann::json& json, const RankIdentity& identity);
void from_json(const nlohmann::json& json, RankIdentity& identity);

// The address for connections between ranks of one machine.
inline constexpr const char* kLoopback = "127.0.0.1";

// The addresses in the system's list of interfaces by which other machines reach this one: IPv4, or global IPv6 if
// there is no IPv4.
std::vector<std::string> addresses_for_others(const ifaddrs* list);
// Identifies this process, with the addresses of its network interfaces.
RankIdentity this_process(int rank, int port);
// All addresses by which other ranks may connect to this rank, the likeliest first. With `from_same_machine` also the
// loopback address.
std::vector<std::string> reported_addresses(const RankIdentity& identity, bool from_same_machine);
// Kills the process if it still runs on this machine.
void kill_process(const RankIdentity& identity);

}  // namespace mpzero
