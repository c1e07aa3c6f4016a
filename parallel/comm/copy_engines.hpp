#pragma once

#include <optional>
#include <string>

namespace mpzero::parallel {

// Returns the reason (one sentence) why a communicator of `world_size` ranks must not use copy engines with this NCCL
// version (10000 * major + 100 * minor + patch), or std::nullopt.
std::optional<std::string> copy_engine_hazard(int nccl_version, int world_size);

}  // namespace mpzero::parallel
