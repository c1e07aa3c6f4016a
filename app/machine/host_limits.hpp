#pragma once

#include <cstdint>
#include <filesystem>

namespace mpzero {

// Host memory that this process can still allocate without swapping or being killed: the kernel's estimate for the
// host, or the rest of the process's cgroup limits, whichever is less. File caches count as free. `root`: parent of
// /proc and /sys.
int64_t available_host_bytes(const std::filesystem::path& root = "/");

// The number of cores that the process's cgroups allow, rounded down, at least 1; 0: no limit.
int allowed_cores(const std::filesystem::path& root = "/");

}  // namespace mpzero
