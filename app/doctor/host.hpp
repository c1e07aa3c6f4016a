#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// What the machine allows a process: locked memory, open files, shared memory, host memory, clock frequency. `gpus`,
// `rdma`: whether there are any here.
std::vector<Finding> check_host(const System& system, const Job& job, bool gpus, bool rdma);

// What a look-up of a host's name gives: an address, one of the loopback, none, no answer in time.
enum class NameLookup : char { kFound = 'f', kLoopback = 'l', kUnknown = 'u', kNoAnswer = 'n' };

// Looks all `hosts` up here; one letter each, in their order. A name server that does not answer is given up after
// `patience`.
std::string look_up_names(const std::vector<std::string>& hosts,
                          std::chrono::milliseconds patience = std::chrono::seconds(4));

// For host `own` of `hosts`: `lookups` holds what look_up_names() gave on each of them. A name that no host knows is
// the fault of the host it belongs to; one that some know, of the hosts that do not.
Finding judge_names(size_t own, const std::vector<std::string>& hosts, const std::vector<std::string>& lookups);

}  // namespace mpzero::doctor
