#pragma once

#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"
#include "base/environment.hpp"

namespace mpzero::doctor {

// Checks what a run on the CPU depends on: vector instructions and AMX, NUMA domains, huge pages. `environment` may
// keep libraries from instructions.
std::vector<Finding> check_cpus(const System& system, const Job& job, const parallel::Environment& environment);

}  // namespace mpzero::doctor
