#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "app/config/run_config.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "parallel/optimizer/lr_schedule.hpp"

namespace mpzero {

// The learning rate schedule of a resumed run.
struct ResumedSchedule {
  std::optional<parallel::LrSchedule> schedule;  // std::nullopt: the schedule in the run's settings
  bool is_explained = false;                     // `line` or `warning` already explains the schedule
  std::string line;                              // log line; empty: none
  std::string warning;                           // warning about a default choice; empty: none
};

// Returns true if two learning rates are equal up to rounding.
bool same_lr(double a, double b);

// Returns the schedule that --schedule_on_resume selects. `known`: the checkpoint's settings.
//
// If the settings are unchanged, the checkpoint's effective schedule continues, so that a requeued job applies a change
// only once. If the length is given in epochs, the schedule advances by sequences, so a different batch size or
// seq_length changes the fraction of the schedule that one step covers. If only the length has changed, the learning
// rate does not jump by default: the run continues the old schedule and then keeps its last learning rate. If the old
// schedule ends near 0, the learning rate instead warms up again in the remaining steps. If other parts of the schedule
// have changed, the new schedule is used. Throws UserError if the checkpoint or the schedule does not support the
// requested --schedule_on_resume.
ResumedSchedule schedule_after(const io::StoredCheckpoint& checkpoint, const RunConfig& config,
                               const nlohmann::json& known);

}  // namespace mpzero
