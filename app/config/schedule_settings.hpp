#pragma once

#include <string>
#include <vector>

#include "app/config/config_merge.hpp"
#include "app/config/run_config.hpp"

namespace mpzero {

// Sets `config.schedule` and its origins: the file's scheduler section; --lr_scheduler_type, which conflicts with such
// a section; a constant rate for a file with neither; mpzero's own schedule without a file. Needs the optimizer's lr
// and max_steps, which may still change: see fit_schedule.
void resolve_schedule(const CommandLine& line, const io::DsConfig& file, ConfigMerge& merge, RunConfig& config,
                      std::vector<std::string>& warnings);

// Fits the schedule to a run of `steps` steps in total: sets its end if none was given, a relative warm-up (rounded up,
// like the Trainer), and the `epoch` steps after which step_lr decays. Throws UserError if the file sets a different
// warm-up.
void fit_schedule(RunConfig& config, int64_t steps, double epoch, std::vector<std::string>& warnings);

}  // namespace mpzero
