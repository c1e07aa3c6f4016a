#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// Checks the limits of this process: locked memory, open files, shared memory, and host memory. `gpus`, `rdma`: true if
// this host has GPUs or RDMA devices.
std::vector<Finding> check_host(const System& system, const Job& job, bool gpus, bool rdma);

// Checks that the checkpoint folder is writable and has free space. If `probe_bytes` exceeds the page size, also
// measures the speed of writing `probe_bytes` bytes to a temporary file. If the folder does not exist, checks the
// nearest existing parent.
std::vector<Finding> check_storage(const std::filesystem::path& folder, int64_t probe_bytes);

}  // namespace mpzero::doctor
