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

// Whether the run's checkpoints contain carried state: compression between nodes carries some, and the checkpoint
// format can store it. The same on all ranks.
bool saves_carried(const RunSetup& setup, const parallel::ZeroEngine& engine);

// This rank's carried state for a save from `snapshot`, which must outlive it. Values come from the snapshot. Null if
// there is nothing to save.
std::shared_ptr<const io::CarriedState> carried_in(StateSnapshot& snapshot, const RunSetup& setup,
                                                   const std::vector<UnitSpec>& units,
                                                   const parallel::ZeroEngine& engine);
// The same for a synchronous save: values come from the engine, one at a time. Collective; waits for the last update.
std::shared_ptr<const io::CarriedState> carried_now(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                                    parallel::ZeroEngine& engine);

// Carried state that one rank finds in a checkpoint.
struct CarriedFound {
  int64_t holders = 0;  // number of ranks with carried state in the checkpoint
  bool is_there = false;
  std::string damage;  // why this rank's file could not be read; empty: no error, or not tried
  int64_t nodes = 0;   // of the run that saved it
  int64_t ranks_per_node = 0;
  bool gradients = false;   // has residuals of all units in this run's shapes and dtype
  bool parameters = false;  // likewise
};

// The carried state that all ranks restore.
struct CarriedChoice {
  bool gradients = false;
  bool parameters = false;
  bool damaged = false;            // a needed file cannot be read: the run cannot use the checkpoint
  std::string left_out;            // why stored state is discarded: "this run has ..."; empty: it belongs to the run
  std::string gradients_missing;   // ranks without the residuals that the run needs, e.g. "rank 1"; empty: none
  std::string parameters_missing;  // likewise
};

// Chooses by the findings of all ranks, so that all choose alike. `needs_...`: whether this run compresses them.
CarriedChoice choose_carried(std::span<const CarriedFound> found, const parallel::ParallelLayout& layout,
                             bool needs_gradients, bool needs_parameters);

// The carried state by unit, for a run that resumes from the checkpoint: the state of the rank at this place if the
// layout is that of the checkpoint's run, gradients and parameters independently; else nothing. All ranks choose the
// same. Adds a sentence to `warnings` if state is discarded or missing. Collective; throws Damaged if a file that the
// run needs is damaged.
std::vector<parallel::Carried> read_carried(const io::StoredCheckpoint& checkpoint, const RunSetup& setup,
                                            const std::vector<UnitSpec>& units, const parallel::ZeroEngine& engine,
                                            ProcessGroup& group, std::vector<std::string>& warnings);

}  // namespace mpzero
