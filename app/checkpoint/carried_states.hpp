#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "base/parameter_spec.hpp"
#include "base/process_group.hpp"
#include "io/checkpoint/carried_file.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// A copy of what compression between nodes carries on this rank, in host memory; null where it carries nothing, or the
// run's checkpoints have no place for it. Waits for the last update. Collective.
std::shared_ptr<const io::CarriedState> copy_carried(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                                     parallel::ZeroEngine& engine);

// What a run that resumes from the checkpoint goes on with, by unit: what a rank of this place carried if the layout is
// that of the checkpoint's run, and else nothing, on all ranks. Adds a sentence to `warnings` where something is left
// behind or missing. Collective.
std::vector<parallel::Carried> read_carried(const io::StoredCheckpoint& checkpoint, const RunSetup& setup,
                                            const std::vector<UnitSpec>& units, parallel::ZeroEngine& engine,
                                            ProcessGroup& group, std::vector<std::string>& warnings);

}  // namespace mpzero
