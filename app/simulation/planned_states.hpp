#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "parallel/host/memory_use.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero::plan {

// Returns ZeroEngine::memory_use() of a rank after planning a step that gathers units in the order `uses`. Runs an
// engine on a simulated device, which allocates no memory. `options.device`: device to simulate. `peer_gpus`: maximum
// size of a shard group whose GPUs access each other's memory. No other simulated device may exist.
parallel::MemoryUse planned_states(const std::vector<UnitSpec>& units, parallel::ZeroOptions options,
                                   const parallel::ParallelLayout& layout, const std::vector<size_t>& uses,
                                   int peer_gpus = std::numeric_limits<int>::max());

}  // namespace mpzero::plan
