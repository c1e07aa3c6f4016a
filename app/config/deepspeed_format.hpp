#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/config/run_config.hpp"
#include "io/deepspeed/plan.hpp"

namespace mpzero {

// For --checkpoint_format deepspeed: throws UserError if ds_config.json selects a file layout that mpzero does not
// write; DeepSpeed would load mpzero's files wrongly without an error.
void check_deepspeed_format(const RunConfig& config, std::vector<std::string>& warnings);

// The run's settings for DeepSpeed's files after `step` updates.
io::DeepSpeedSettings deepspeed_settings(const RunConfig& config, int64_t step);

}  // namespace mpzero
