#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app/checkpoint/state_snapshot.hpp"
#include "app/config/run_setup.hpp"
#include "base/parameter_spec.hpp"
#include "base/process_group.hpp"
#include "io/checkpoint/carried_file.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// Whether the run's checkpoints hold what compression between nodes carries: it carries something, and their format has
// a place for it. The same on all ranks.
bool saves_carried(const RunSetup& setup, const parallel::ZeroEngine& engine);

// This rank's carried state for a save from `snapshot`, which must outlive it. Values come from the snapshot. Null if
// there is nothing to save.
std::shared_ptr<const io::CarriedState> carried_in(StateSnapshot& snapshot, const RunSetup& setup,
                                                   const std::vector<UnitSpec>& units,
                                                   const parallel::ZeroEngine& engine);
// The same for a save that training waits for: values come from the engine, one at a time. Collective; waits for the
// last update.
std::shared_ptr<const io::CarriedState> carried_now(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                                    parallel::ZeroEngine& engine);

// What one rank finds in a checkpoint of what it would go on with.
struct CarriedFound {
  int64_t holders = 0;  // ranks that the checkpoint has something of
  bool is_there = false;
  std::string damage;  // why this rank's could not be read; empty: it was, or was not tried
  int64_t nodes = 0;   // of the run that saved it
  int64_t ranks_per_node = 0;
  bool gradients = false;   // residuals of all units, as this run has them
  bool parameters = false;  // the same
};

// What all ranks go on with.
struct CarriedChoice {
  bool gradients = false;
  bool parameters = false;
  bool damaged = false;  // what is needed cannot be read: the checkpoint is of no use to the run
  std::string left_out;  // why nothing is taken of what is there, as "this run has ..."; empty: it belongs to the run
  std::string gradients_missing;   // where the run needs them and does not get them: of which ranks, as "rank 1"
  std::string parameters_missing;  // the same
};

// By what all ranks have found, so that all choose alike. `needs_...`: what the run compresses.
CarriedChoice choose_carried(std::span<const CarriedFound> found, const parallel::ParallelLayout& layout,
                             bool needs_gradients, bool needs_parameters);

// What a run that resumes from the checkpoint goes on with, by unit: what a rank of this place carried if the layout is
// that of the checkpoint's run, gradients and parameters each for itself, and else nothing; the same on all ranks. Adds
// a sentence to `warnings` where something is left behind or missing. Collective; throws Damaged where a file that the
// run needs is damaged.
std::vector<parallel::Carried> read_carried(const io::StoredCheckpoint& checkpoint, const RunSetup& setup,
                                            const std::vector<UnitSpec>& units, const parallel::ZeroEngine& engine,
                                            ProcessGroup& group, std::vector<std::string>& warnings);

}  // namespace mpzero
