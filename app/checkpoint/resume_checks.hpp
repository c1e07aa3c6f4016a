#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "base/parameter_spec.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"

// What a run that resumes from a checkpoint may have changed: docs/runs.md has the table.
namespace mpzero {

// Throws UserError where the run cannot go on from the checkpoint: other parameters, another model of the same
// parameters, states of another optimizer, another seed. One sentence names what differs, with both values.
void check_resumable(const io::StoredCheckpoint& checkpoint, const RunSetup& setup, const std::vector<UnitSpec>& units);

// How a run continues from a checkpoint that check_resumable has accepted.
struct Continuation {
  RunConfig config;  // with the length and the schedule that follow from the position
  RunPosition position;
  std::vector<std::string> changes;        // a line that lists what has changed, and other lines for the log
  std::vector<std::string> warnings;       // of changes that the user may not have meant
  std::vector<std::string> differences;    // each key with both values: "lr 0.001 -> 0.0001"; not of the layout
  std::optional<std::string> recompute{};  // of the checkpoint's run; std::nullopt: not recorded
};
// What depends on data that is not prepared yet stays open: the data's identity, and steps that follow from --epochs.
// Throws UserError where the schedule cannot continue: see schedule_after.
Continuation continue_run(const io::StoredCheckpoint& checkpoint, const RunSetup& setup);

// Throws UserError where nothing is left to train and `run` has differences: the finished run is not the one that is
// asked for, and a start that ends at once would look as if it were.
void check_unfinished(const io::StoredCheckpoint& checkpoint, const RunSetup& setup, const Continuation& run);

}  // namespace mpzero
