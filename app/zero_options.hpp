#pragma once

#include "app/run_config.hpp"
#include "parallel/zero_engine.hpp"

namespace mpzero {

// A run's configuration in the engine's terms.
parallel::ZeroOptions zero_options(const RunConfig& config, at::Device device);

}  // namespace mpzero
