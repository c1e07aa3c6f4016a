#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/run_setup.hpp"
#include "app/run_state.hpp"
#include "base/process_group.hpp"
#include "parallel/zero_engine.hpp"

namespace mpzero {

// Fills the engine from the checkpoint that the run shall go on from: the one that --resume_from_checkpoint names, or
// the newest good one in its folder or in the checkpoint folder. One that turns out damaged or unfinished is named in
// `warnings`, and the next older one is taken; with --resume_strict, or if none is left, that throws. Returns nothing
// where there is no checkpoint. Collective: an error on one rank is thrown on all. Each rank reads its own shard. Adds
// to `warnings` what the user may not have meant.
struct Resumed {
  std::filesystem::path checkpoint;
  RunPosition position;
};
std::optional<Resumed> resume_run(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                  parallel::ZeroEngine& engine, ProcessGroup& group,
                                  std::vector<std::string>& warnings);

}  // namespace mpzero
