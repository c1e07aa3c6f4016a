#include "app/liveness/link/rank_identity.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/host_name.hpp"

namespace mpzero {
namespace {

// The start time of a process according to the kernel: field 22 of /proc/PID/stat; 0 if there is no such process.
int64_t start_of(int64_t pid) {
  constexpr int kFieldsBefore = 19;  // after the name, which ends with the last ')'
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

// The name by which a job can exclude this node.
std::string node_name() { return name_in_job(parallel::process_environment).value_or(host_name()); }

// Bridges of containers and virtual machines do not lead to other machines.
bool leads_out(std::string_view interface) {
  constexpr std::array<std::string_view, 5> kInside = {"docker", "veth", "virbr", "br-", "cni"};
  return std::none_of(kInside.begin(), kInside.end(), [&](auto prefix) { return interface.starts_with(prefix); });
}

// std::nullopt if another machine cannot connect to the address: a link-local one means another interface there.
std::optional<std::string> text_of(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address.sa_family == AF_INET) {
    const in_addr& ipv4 = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
    // A machine in a network of IPv6 may give itself such an address.
    constexpr uint32_t kLinkLocal = 0xA9FE;  // 169.254/16
    if (ntohl(ipv4.s_addr) >> 16U == kLinkLocal) return std::nullopt;
    bytes = &ipv4;
  } else {
    const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&ipv6) || IN6_IS_ADDR_LOOPBACK(&ipv6)) return std::nullopt;
    bytes = &ipv6;
  }
  if (inet_ntop(address.sa_family, bytes, text.data(), text.size()) == nullptr) return std::nullopt;
  return text.data();
}

std::vector<std::string> addresses_of_family(const ifaddrs* list, int family) {
  std::vector<std::string> addresses;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
    if ((one->ifa_flags & IFF_LOOPBACK) != 0 || (one->ifa_flags & IFF_UP) == 0 || !leads_out(one->ifa_name)) continue;
    if (std::optional<std::string> text = text_of(*one->ifa_addr)) addresses.push_back(std::move(*text));
  }
  return addresses;
}

std::vector<std::string> own_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::vector<std::string> addresses = addresses_for_others(list);
  freeifaddrs(list);
  return addresses;
}

}  // namespace

std::vector<std::string> addresses_for_others(const ifaddrs* list) {
  std::vector<std::string> addresses = addresses_of_family(list, AF_INET);
  for (std::string& address : addresses_of_family(list, AF_INET6)) addresses.push_back(std::move(address));
  return addresses;
}

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

std::vector<std::string> reported_addresses(const RankIdentity& identity, bool from_same_machine) {
  std::vector<std::string> addresses;
  if (from_same_machine) {
    for (const char* loopback : {kLoopback, "::1"}) addresses.emplace_back(loopback);
  }
  for (const std::string& address : identity.addresses) {
    // Two interfaces may have the same address.
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) addresses.push_back(address);
  }
  return addresses;
}

void kill_process(const RankIdentity& identity) {
  if (identity.machine != host_name() || identity.pid <= 1 || identity.pid == getpid()) return;
  if (start_of(identity.pid) == identity.started) kill(static_cast<pid_t>(identity.pid), SIGKILL);
}

}  // namespace mpzero
