#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/config/run_config.hpp"
#include "io/deepspeed/plan.hpp"

namespace mpzero {

// Throws UserError if --checkpoint_format deepspeed is set and ds_config.json selects a file layout that mpzero does
// not support, because DeepSpeed would silently load the checkpoint incorrectly.
void check_deepspeed_format(const RunConfig& config, std::vector<std::string>& warnings);

// Returns the run's settings for DeepSpeed's checkpoint files after `step` updates.
io::DeepSpeedSettings deepspeed_settings(const RunConfig& config, int64_t step);

}  // namespace mpzero
