#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace mpzero {

// Returns the number after the word `key` in a file of keys and numbers, such as "MemTotal:" in /proc/meminfo.
std::optional<int64_t> number_after(const std::filesystem::path& path, const std::string& key);

// Returns the bytes of host memory that this process can allocate without swapping or being OOM-killed: the minimum of
// the kernel's estimate for the host and the remaining memory of the process's cgroups. File caches count as free
// memory. `root`: parent of /proc and /sys.
int64_t available_host_bytes(const std::filesystem::path& root = "/");

// Returns the CPU limit of the process's cgroups in cores, rounded down, but at least 1; 0 if there is no limit.
int allowed_cores(const std::filesystem::path& root = "/");

}  // namespace mpzero
