#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "app/machine/finding.hpp"

namespace mpzero::doctor {

// Checks the free space in the checkpoint folder and whether it is writable; if `probe_bytes` is more than a page, also
// how fast that many bytes reach the disk. The file is removed afterwards. The folder itself is not created: if it is
// missing, its nearest existing parent is checked.
std::vector<Finding> check_storage(const std::filesystem::path& folder, int64_t probe_bytes);

}  // namespace mpzero::doctor
