#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "base/parameter_spec.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"

// Changes that a run may make when it resumes from a checkpoint: see the table in docs/runs.md.
namespace mpzero {

// Throws UserError if the run cannot resume from the checkpoint: other parameters, another model of the same
// parameters, states of another optimizer, another seed. The message contains each difference with both values.
void check_resumable(const io::StoredCheckpoint& checkpoint, const RunSetup& setup, const std::vector<UnitSpec>& units);

// How a run continues from a checkpoint that check_resumable has accepted.
struct Continuation {
  RunConfig config;  // with the length and the schedule computed from the position
  RunPosition position;
  std::vector<std::string> changes;        // log lines about changes
  std::vector<std::string> warnings;       // about changes that may be unintended
  std::vector<std::string> differences;    // each key with both values: "lr 0.001 -> 0.0001"; without the layout
  std::optional<std::string> recompute{};  // of the checkpoint's run; std::nullopt: not recorded
};
// Before the data is prepared, does not compare the data's identity, nor settings that depend on its size, such as the
// steps of --epochs. Throws UserError if the schedule cannot continue: see schedule_after.
Continuation continue_run(const io::StoredCheckpoint& checkpoint, const RunSetup& setup);

// Throws UserError if no step is left to train and `run` has differences: the finished run is not the requested one,
// and a start that ends at once would look as if it were.
void check_unfinished(const io::StoredCheckpoint& checkpoint, const RunSetup& setup, const Continuation& run);

}  // namespace mpzero
