#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "base/parameter_spec.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"

// Checks that a resumed run changes only settings that may be changed on resume (table in docs/runs.md).
namespace mpzero {

// Throws UserError if the checkpoint has different parameters or a different model configuration, optimizer or seed.
// The message lists each difference with both values.
void check_resumable(const io::StoredCheckpoint& checkpoint, const RunSetup& setup, const std::vector<UnitSpec>& units);

// The state and settings of a run that resumes from a checkpoint accepted by check_resumable().
struct Continuation {
  RunConfig config;  // length and schedule are computed from the position
  RunPosition position;
  std::vector<std::string> changes;        // log lines
  std::vector<std::string> warnings;       // changes that may be unintended
  std::vector<std::string> differences;    // key and both values: "lr 0.001 -> 0.0001"; excludes the layout
  std::optional<std::string> recompute{};  // --recompute of the checkpoint's run; std::nullopt: not recorded
};
// Determines how the run continues from the checkpoint. If the training data does not exist yet, compares neither data
// identities nor settings that depend on the data size, such as the number of steps with --epochs. Throws UserError if
// the schedule cannot continue: see schedule_after().
Continuation continue_run(const io::StoredCheckpoint& checkpoint, const RunSetup& setup);

// Throws UserError if the checkpoint is from the run's last step or a later step but `run.differences` is not empty.
// Without this check, the run would end immediately and appear to have trained with the changed settings.
void check_unfinished(const io::StoredCheckpoint& checkpoint, const RunSetup& setup, const Continuation& run);

}  // namespace mpzero
