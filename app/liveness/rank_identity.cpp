#include "app/liveness/rank_identity.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "base/host_name.hpp"

namespace mpzero {
namespace {

// The kernel's account of when a process started: field 22 of /proc/PID/stat; 0 where there is no such process.
int64_t start_of(int64_t pid) {
  constexpr int kFieldsBefore = 19;  // behind the name, which ends with the last ')'
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::stringstream text;
  text << file.rdbuf();
  const std::string line = text.str();
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int i = 0; i < kFieldsBefore; ++i) fields >> field;
  int64_t started = 0;
  fields >> started;
  return started;
}

// The name under which a job can exclude this node.
std::string node_name() {
  const char* name = std::getenv("SLURMD_NODENAME");
  return name != nullptr && *name != '\0' ? name : host_name();
}

// Bridges of containers and virtual machines lead nowhere else.
bool leads_out(std::string_view interface) {
  constexpr std::array<std::string_view, 5> kInside = {"docker", "veth", "virbr", "br-", "cni"};
  return std::none_of(kInside.begin(), kInside.end(), [&](auto prefix) { return interface.starts_with(prefix); });
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & IFF_LOOPBACK) != 0 || (one->ifa_flags & IFF_UP) == 0 || !leads_out(one->ifa_name)) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) != nullptr)
      addresses.emplace_back(text.data());
  }
  freeifaddrs(list);
  return addresses;
}

}  // namespace

void to_json(nlohmann::json& json, const RankIdentity& identity) {
  json = {
      {"rank", identity.rank},       {"host", identity.host}, {"machine", identity.machine},    {"pid", identity.pid},
      {"started", identity.started}, {"port", identity.port}, {"addresses", identity.addresses}};
}

void from_json(const nlohmann::json& json, RankIdentity& identity) {
  json.at("rank").get_to(identity.rank);
  json.at("host").get_to(identity.host);
  json.at("machine").get_to(identity.machine);
  json.at("pid").get_to(identity.pid);
  json.at("started").get_to(identity.started);
  json.at("port").get_to(identity.port);
  json.at("addresses").get_to(identity.addresses);
}

RankIdentity this_process(int rank, int port) {
  return {.rank = rank,
          .host = node_name(),
          .machine = host_name(),
          .pid = getpid(),
          .started = start_of(getpid()),
          .port = port,
          .addresses = own_addresses()};
}

std::vector<std::string> told_addresses(const RankIdentity& identity, bool from_same_machine) {
  std::vector<std::string> addresses;
  if (from_same_machine) addresses.emplace_back(kLoopback);
  for (const std::string& address : identity.addresses) {
    // Two interfaces may have the same.
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) addresses.push_back(address);
  }
  return addresses;
}

void kill_process(const RankIdentity& identity) {
  if (identity.machine != host_name() || identity.pid <= 1 || identity.pid == getpid()) return;
  if (start_of(identity.pid) == identity.started) kill(static_cast<pid_t>(identity.pid), SIGKILL);
}

}  // namespace mpzero
