#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "app/doctor/finding.hpp"
#include "app/doctor/system.hpp"

namespace mpzero::doctor {

// What the machine allows a process: locked memory, open files, shared memory, host memory, clock frequency. `gpus`,
// `rdma`: whether there are any here.
std::vector<Finding> check_host(const System& system, const Job& job, bool gpus, bool rdma);

// Whether each of `hosts` has an address here, `own` among them. A name server that does not answer is given up after
// `patience`.
Finding check_names(const std::string& own, const std::vector<std::string>& hosts,
                    std::chrono::milliseconds patience = std::chrono::seconds(4));

}  // namespace mpzero::doctor
