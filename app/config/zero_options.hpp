#pragma once

#include "app/config/run_config.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// A run's configuration in the engine's terms.
parallel::ZeroOptions zero_options(const RunConfig& config, at::Device device);

}  // namespace mpzero
