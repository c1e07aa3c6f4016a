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

// What the user should know of a checkpoint that check_resumable lets the run go on from.
struct ResumeNotes {
  std::vector<std::string> changes;  // a line that lists what has changed, if anything has, and what else is to be said
  std::vector<std::string> warnings;               // of changes that the user may not have meant
  std::vector<std::string> differences;            // each key with both values: "lr 0.001 -> 0.0001"
  std::optional<parallel::LrSchedule> schedule{};  // see ResumedSchedule
};
// What depends on data that is not prepared yet is not compared: the data's identity, and steps that follow from
// --epochs.
ResumeNotes compare_runs(const io::StoredCheckpoint& checkpoint, const RunSetup& setup);

// Throws UserError where nothing is left to train and `notes` has differences: the finished run is not the one that is
// asked for, and a start that ends at once would look as if it were.
void check_unfinished(const io::StoredCheckpoint& checkpoint, const RunSetup& setup, const ResumeNotes& notes);

}  // namespace mpzero
