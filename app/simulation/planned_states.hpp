#pragma once

#include <cstdint>
#include <vector>

#include "parallel/host/memory_use.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero::plan {

// ZeroEngine::memory_use() of a rank after it has planned a step that gathers units in the order `uses`. Uses an engine
// on a simulated device, which allocates nothing. `options.device`: the device to simulate. There must be no other
// simulated device.
parallel::MemoryUse planned_states(const std::vector<UnitSpec>& units, parallel::ZeroOptions options,
                                   const parallel::ParallelLayout& layout, const std::vector<size_t>& uses);

}  // namespace mpzero::plan
