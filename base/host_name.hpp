#pragma once

#include <optional>
#include <string>

#include "base/environment.hpp"

namespace mpzero {

// Returns the kernel's host name.
std::string host_name();

// Returns the name by which other hosts in the job reach this host: Slurm's (SLURMD_NODENAME), or a pod's DNS name
// (MPZERO_HOST, set by container/node and container/launch because DNS does not resolve a pod's kernel host name).
// Returns std::nullopt if neither variable is set.
std::optional<std::string> name_in_job(const parallel::Environment& environment);

}  // namespace mpzero
