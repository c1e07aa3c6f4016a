#pragma once

#include <optional>
#include <string>

namespace mpzero::parallel {

// Why a communicator of `world_size` ranks had better not use copy engines with this NCCL (10000 * major + 100 * minor
// + patch), in one sentence; none: it may.
std::optional<std::string> copy_engine_hazard(int nccl_version, int world_size);

}  // namespace mpzero::parallel
