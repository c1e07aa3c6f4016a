#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "app/config/run_config.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "parallel/optimizer/lr_schedule.hpp"

namespace mpzero {

// What the learning rate does after a checkpoint.
struct ResumedSchedule {
  std::optional<parallel::LrSchedule> schedule;  // nothing: that of the run's settings
  bool is_explained = false;                     // no other sentence about the schedule is needed
  std::string line;                              // for the log; empty: nothing to say
  std::string warning;                           // of what the user has not chosen; empty: nothing
};

// Whether two learning rates are the same, but for the rounding of the ways that led to them.
bool same_lr(double a, double b);

// Chooses it by --schedule_on_resume. `known`: the checkpoint's settings.
//
// A schedule that has not changed since the checkpoint continues as it was in force there, so that a requeued command
// changes nothing twice. If epochs decide its length, it advances with the sequences: another batch size or seq_length
// changes how much of it a step takes. If its length has changed, the learning rate does not jump unless `extend` is
// given: the schedule is kept, and so is its last rate; one that ends at almost nothing warms up again, within the
// steps that remain. If more than its length has changed, the new schedule holds. Throws UserError if the checkpoint or
// the schedule does not allow the way that is asked for.
ResumedSchedule schedule_after(const io::StoredCheckpoint& checkpoint, const RunConfig& config,
                               const nlohmann::json& known);

}  // namespace mpzero
