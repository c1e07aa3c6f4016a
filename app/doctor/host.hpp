#pragma once

#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// Checks what the machine allows a process: locked memory, open files, shared memory, host memory, clock frequency.
// `gpus`, `rdma`: whether this host has any.
std::vector<Finding> check_host(const System& system, const Job& job, bool gpus, bool rdma);

}  // namespace mpzero::doctor
