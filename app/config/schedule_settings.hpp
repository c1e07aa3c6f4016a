#pragma once

#include <string>
#include <vector>

#include "app/config/config_merge.hpp"
#include "app/config/run_config.hpp"

namespace mpzero {

// Sets `config.schedule` and its origins from the scheduler section of ds_config.json or from --lr_scheduler_type;
// setting both is an error. If neither is set, runs with ds_config.json use a constant learning rate, and all other
// runs use mpzero's default schedule. Must be called after the optimizer's lr and max_steps are set. If max_steps
// changes later, call fit_schedule().
void resolve_schedule(const CommandLine& line, const io::DsConfig& file, ConfigMerge& merge, RunConfig& config,
                      std::vector<std::string>& warnings);

// Fits the schedule to a run of `steps` steps. Sets the schedule's end unless it is configured, computes the number of
// warm-up steps from a warm-up ratio (rounded up as in the Trainer), and sets the interval of step_lr to `epoch` steps.
// Throws UserError if ds_config.json sets a different warm-up.
void fit_schedule(RunConfig& config, int64_t steps, double epoch, std::vector<std::string>& warnings);

}  // namespace mpzero
