#pragma once

#include <memory>
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

// Returns true if the run's checkpoints contain carried state, i.e. if the run compresses communication between shard
// groups (parallel::Carried) and the checkpoint format supports this state. All ranks return the same value.
bool saves_carried(const RunSetup& setup, const parallel::ZeroEngine& engine);

// Returns this rank's carried state for a save from `snapshot`, which must outlive the result. Returns null if
// saves_carried() is false.
std::shared_ptr<const io::CarriedState> carried_in(StateSnapshot& snapshot, const RunSetup& setup,
                                                   const std::vector<UnitSpec>& units,
                                                   const parallel::ZeroEngine& engine);
// Like carried_in(), but for a synchronous save: waits for the engine's last update and copies one tensor at a time.
// Collective.
std::shared_ptr<const io::CarriedState> carried_now(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                                    parallel::ZeroEngine& engine);

// Reads this rank's carried state, one element per unit. Returns an empty vector if the checkpoint was saved with a
// different layout. Restores gradient residuals and parameters independently. Warns if some of the state is discarded
// or missing. Collective. Throws Damaged if a required file is damaged.
std::vector<parallel::Carried> read_carried(const io::StoredCheckpoint& checkpoint, const RunSetup& setup,
                                            const std::vector<UnitSpec>& units, const parallel::ZeroEngine& engine,
                                            ProcessGroup& group, std::vector<std::string>& warnings);

}  // namespace mpzero
