#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/run_setup.hpp"
#include "base/process_group.hpp"
#include "io/checkpoint_save.hpp"
#include "parallel/zero_engine.hpp"

namespace mpzero {

// How far a run is.
struct RunPosition {
  int64_t step = 0;          // optimizer steps done
  int64_t windows_seen = 0;  // training windows that all ranks together have consumed
  int64_t tokens_seen = 0;
};

// Fills the engine with --init_from's weights, or with random ones. Collective.
void initialize_run(const RunSetup& setup, const std::vector<UnitSpec>& units, parallel::ZeroEngine& engine,
                    ProcessGroup& group);

// What this rank writes of a checkpoint, unit by unit. Unsharded states are the same on every rank; rank 0 writes them.
std::vector<io::UnitShard> checkpoint_shards(const RunConfig& config, const std::vector<UnitSpec>& units,
                                             const parallel::ZeroEngine& engine, int rank);

// The checkpoint of this position. `units` outlive it.
io::SaveJob checkpoint_job(const RunSetup& setup, const RunPosition& position, const std::vector<UnitSpec>& units,
                           const parallel::ZeroEngine& engine, int rank);

// The tag of step `step`: "<model_type>-<step>steps".
std::string checkpoint_tag(const RunConfig& config, int64_t step);

}  // namespace mpzero
