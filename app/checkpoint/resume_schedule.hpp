#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "app/config/run_config.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "parallel/optimizer/lr_schedule.hpp"

namespace mpzero {

// The learning-rate schedule after a checkpoint.
struct ResumedSchedule {
  std::optional<parallel::LrSchedule> schedule;  // std::nullopt: the schedule of the run's settings
  bool is_explained = false;                     // no other sentence about the schedule is needed
  std::string line;                              // for the log; empty: nothing to say
  std::string warning;                           // about choices that the user has not made; empty: none
};

// Whether two learning rates are equal up to rounding.
bool same_lr(double a, double b);

// Chooses the schedule by --schedule_on_resume. `known`: the checkpoint's settings.
//
// A schedule that is unchanged since the checkpoint continues as it was in force there, so that a requeued command
// applies a change only once. If epochs set its length, it advances with the sequences: another batch size or
// seq_length changes how much of it a step covers. If its length has changed, the learning rate does not jump unless
// `extend` is requested: the schedule is kept, and then its last rate; one that ends near 0 warms up again within the
// remaining steps. If more than its length has changed, the new schedule applies. Throws UserError if the checkpoint or
// the schedule does not allow the requested choice.
ResumedSchedule schedule_after(const io::StoredCheckpoint& checkpoint, const RunConfig& config,
                               const nlohmann::json& known);

}  // namespace mpzero
