#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// Checks what the machine allows a process: locked memory, open files, shared memory, host memory, clock frequency.
// `gpus`, `rdma`: whether this host has any.
std::vector<Finding> check_host(const System& system, const Job& job, bool gpus, bool rdma);

// The result of looking up a host's name: an address, a loopback address, none, no answer in time.
enum class NameLookup : char { kFound = 'f', kLoopback = 'l', kUnknown = 'u', kNoAnswer = 'n' };

// Looks up all `hosts` on this host; the result has one letter each, in their order. Gives up on a name server that
// does not answer after `patience`.
std::string look_up_names(const std::vector<std::string>& hosts,
                          std::chrono::milliseconds patience = std::chrono::seconds(4));

// For host `own` of `hosts`: `lookups` holds the result of look_up_names() on each of them. A name that no host knows
// is the fault of the host with that name; a name that some hosts know is the fault of the hosts that do not.
Finding judge_names(size_t own, const std::vector<std::string>& hosts, const std::vector<std::string>& lookups);

}  // namespace mpzero::doctor
