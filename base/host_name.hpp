#pragma once

#include <optional>
#include <string>

#include "base/environment.hpp"

namespace mpzero {

// The name of this machine, as the kernel reports it.
std::string host_name();

// The name by which what runs the job knows this machine, and others reach it: Slurm's (SLURMD_NODENAME), or that of a
// pod in DNS (MPZERO_HOST, which container/node and container/launch set: the kernel's name of a pod is no name of
// DNS). std::nullopt: there is none.
std::optional<std::string> name_in_job(const parallel::Environment& environment);

}  // namespace mpzero
