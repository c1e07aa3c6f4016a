#pragma once

#include <cstdint>
#include <filesystem>

namespace mpzero {

// How much host memory this process could take without swapping or being killed: what the kernel says is available,
// and no more than the limits of its control groups leave, page cache counted as free. `root` holds /proc and /sys.
int64_t host_memory_left(const std::filesystem::path& root = "/");

}  // namespace mpzero
