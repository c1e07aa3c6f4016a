#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/config/run_config.hpp"
#include "io/deepspeed/plan.hpp"

namespace mpzero {

// --checkpoint_format deepspeed: throws UserError where ds_config.json lets DeepSpeed lay out its files in a way that
// mpzero does not write, which it would load without noticing.
void check_deepspeed_format(const RunConfig& config, std::vector<std::string>& warnings);

// What DeepSpeed's files say of the run after `step` updates.
io::DeepSpeedSettings deepspeed_settings(const RunConfig& config, int64_t step);

}  // namespace mpzero
