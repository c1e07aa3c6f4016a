#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// Checks what the machine allows a process: locked memory, open files, shared memory, host memory, clock frequency.
// `gpus`, `rdma`: whether this host has any.
std::vector<Finding> check_host(const System& system, const Job& job, bool gpus, bool rdma);

// The result of looking up a host's name: an address, a loopback address, none, no answer in time, or not asked.
enum class NameLookup : char { kFound = 'f', kLoopback = 'l', kUnknown = 'u', kNoAnswer = 'n', kNotAsked = '-' };

using Resolver = std::function<NameLookup(const std::string& host)>;
// Asks the system (getaddrinfo()).
NameLookup look_up(const std::string& host);

// glibc sends a query again after 5 seconds, twice in all: several lost packets are waited for.
inline constexpr std::chrono::seconds kNamePatience(40);
// Names that a host looks up, and hosts that look up a name.
inline constexpr size_t kMostLookups = 16;

// Looks up names on host `own` of `hosts`, one after the other: its own and those of the next hosts, at most
// kMostLookups, so that the hosts together do not ask for all names at once. The result has one letter for each host.
// A name without an answer is asked for once more; a second time without an answer, or `patience`, ends the look-ups.
std::string look_up_names(size_t own, const std::vector<std::string>& hosts, Resolver resolver = look_up,
                          std::chrono::milliseconds patience = kNamePatience);

// For host `own` of `hosts`: `lookups` holds the result of look_up_names() on each of them. A name that no host knows
// is the fault of the host with that name; a name that some hosts know is the fault of the hosts that do not.
Finding judge_names(size_t own, const std::vector<std::string>& hosts, const std::vector<std::string>& lookups);

}  // namespace mpzero::doctor
