#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// Checks what the machine allows a process: locked memory, open files, shared memory, host memory.
// `gpus`, `rdma`: whether this host has any.
std::vector<Finding> check_host(const System& system, const Job& job, bool gpus, bool rdma);

// Checks what a run on the CPU depends on: vector instructions and AMX, NUMA domains, huge pages.
std::vector<Finding> check_cpus(const System& system, const Job& job);

// Checks the free space in the checkpoint folder and whether it is writable; if `probe_bytes` is more than a page, also
// how fast that many bytes reach the disk. The file is removed afterwards. The folder itself is not created: if it is
// missing, its nearest existing parent is checked.
std::vector<Finding> check_storage(const std::filesystem::path& folder, int64_t probe_bytes);

}  // namespace mpzero::doctor
