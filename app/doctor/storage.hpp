#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "app/machine/finding.hpp"

namespace mpzero::doctor {

// Room in the checkpoint folder, and whether something can be written there; with `probe_bytes` more than a page, how
// fast that many bytes reach the disk. The file is removed again. The folder itself is not made: where it is missing,
// the nearest folder above it is looked at.
std::vector<Finding> check_storage(const std::filesystem::path& folder, int64_t probe_bytes);

}  // namespace mpzero::doctor
