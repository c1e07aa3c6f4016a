#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "app/run_setup.hpp"
#include "base/process_group.hpp"
#include "parallel/zero_engine.hpp"

namespace mpzero {

// How far a run is.
struct RunPosition {
  int64_t step = 0;          // optimizer steps done
  int64_t windows_seen = 0;  // training windows that all ranks together have consumed
  int64_t tokens_seen = 0;
};

// The checkpoint that the run shall go on from, if any: --resume_from_checkpoint, or what `latest` in the checkpoint
// folder names. Throws UserError if the one asked for is not there.
std::optional<std::filesystem::path> checkpoint_to_resume(const RunConfig& config);

// Fills the engine from the checkpoint. Collective: an error on one rank is thrown on all. Each rank reads its own
// shard. Adds to `warnings` what the user may not have meant.
RunPosition restore_run(const std::filesystem::path& checkpoint, const RunSetup& setup,
                        const std::vector<UnitSpec>& units, parallel::ZeroEngine& engine, ProcessGroup& group,
                        std::vector<std::string>& warnings);

// Fills the engine with --init_from's weights, or with random ones. Collective.
void initialize_run(const RunSetup& setup, const std::vector<UnitSpec>& units, parallel::ZeroEngine& engine,
                    ProcessGroup& group);

// Writes the checkpoint of this position and prunes older ones; returns its folder. Collective.
std::filesystem::path save_run(const RunSetup& setup, const RunPosition& position, const std::vector<UnitSpec>& units,
                               parallel::ZeroEngine& engine, ProcessGroup& group);

// The tag of step `step`: "<model_type>-<step>steps".
std::string checkpoint_tag(const RunConfig& config, int64_t step);

}  // namespace mpzero
