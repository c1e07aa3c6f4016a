#pragma once

#include <string>
#include <vector>

#include "app/config/config_merge.hpp"
#include "app/config/run_config.hpp"

namespace mpzero {

// Chooses `config.schedule` with its origins: the file's scheduler section; --lr_scheduler_type, with which the file
// may have no such section; a constant rate for a file without either; mpzero's own schedule without a file. Needs the
// optimizer's lr and max_steps, which may still change: see fit_schedule.
void resolve_schedule(const CommandLine& line, const io::DsConfig& file, ConfigMerge& merge, RunConfig& config,
                      std::vector<std::string>& warnings);

// Fits the schedule to a run of `steps` in all: its end where nobody gave another, a warm-up that is a share of the
// run, which is rounded up as the Trainer does, and step_lr's decay after each `epoch` steps. Throws UserError where
// the file says another warm-up.
void fit_schedule(RunConfig& config, int64_t steps, double epoch, std::vector<std::string>& warnings);

}  // namespace mpzero
