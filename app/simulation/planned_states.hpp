#pragma once

#include <cstdint>
#include <vector>

#include "parallel/host/memory_use.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero::plan {

// ZeroEngine::memory_use() of a rank, once a step that gathers the units in the order `uses` is planned: of an engine
// on a simulated device, which allocates nothing. `options.device` is the device that it stands for. There must be no
// other simulated device.
parallel::MemoryUse planned_states(const std::vector<UnitSpec>& units, parallel::ZeroOptions options,
                                   const parallel::ParallelLayout& layout, const std::vector<size_t>& uses);

}  // namespace mpzero::plan
