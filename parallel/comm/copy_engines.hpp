#pragma once

#include <optional>
#include <string>

namespace mpzero::parallel {

// Why a communicator of `world_size` ranks must avoid copy engines with this NCCL (10000 * major + 100 * minor +
// patch), in one sentence; std::nullopt: it may use them.
std::optional<std::string> copy_engine_hazard(int nccl_version, int world_size);

}  // namespace mpzero::parallel
