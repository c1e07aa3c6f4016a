#pragma once

#include <cstdint>
#include <filesystem>

namespace mpzero {

// Host memory that this process could still take without swapping and without being killed for it: what the kernel
// estimates for the machine, or what the control groups that the process is in leave, caches of files counted as free,
// whichever is less. `root`: where /proc and /sys are.
int64_t available_host_bytes(const std::filesystem::path& root = "/");

// How many cores' worth of time the process's control groups allow, rounded down, at least 1; 0: no limit.
int allowed_cores(const std::filesystem::path& root = "/");

}  // namespace mpzero
