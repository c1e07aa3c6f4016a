#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// Checks the limits of a process on this host: locked memory, open files, shared memory, host memory. `gpus`, `rdma`:
// whether this host has GPUs or RDMA devices.
std::vector<Finding> check_host(const System& system, const Job& job, bool gpus, bool rdma);

// Checks the requirements of a run on the CPU: vector instructions and AMX, NUMA domains, huge pages.
std::vector<Finding> check_cpus(const System& system, const Job& job);

// Checks the free space in the checkpoint folder and whether it is writable; if `probe_bytes` is more than a page, also
// the write speed of that many bytes. The file is removed afterwards. The folder itself is not created: if it is
// missing, its nearest existing parent is checked.
std::vector<Finding> check_storage(const std::filesystem::path& folder, int64_t probe_bytes);

}  // namespace mpzero::doctor
