#pragma once

#include <optional>
#include <string>

#include "base/environment.hpp"

namespace mpzero {

// The name of this machine, as the kernel reports it.
std::string host_name();

// This host's name in the job, by which other hosts reach it: Slurm's (SLURMD_NODENAME), or a pod's DNS name
// (MPZERO_HOST, set by container/node and container/launch because the kernel's host name of a pod is not in DNS).
// std::nullopt if neither is set.
std::optional<std::string> name_in_job(const parallel::Environment& environment);

}  // namespace mpzero
