#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/run_state.hpp"
#include "app/config/run_setup.hpp"
#include "base/process_group.hpp"
#include "io/checkpoint/run_record.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// Restores the engine from the checkpoint that --resume_from_checkpoint names, or from the newest good one in its
// folder or in the checkpoint folder. A damaged or unfinished checkpoint is a warning, and the next older one is tried;
// with --resume_strict, or if none is left, this throws. A checkpoint that cannot be read for another reason (a system
// error, a newer format) throws, since it may be complete and the newest. Returns nothing if there is no checkpoint.
// Collective: an error on one rank is thrown on all. Each rank reads its own shard. Adds a warning for each change that
// may be unintended.
//
// Tries only checkpoints of one run: see io::ResumeCandidates. Throws UserError for a run of other weights, or one that
// check_resumable or check_unfinished refuses.
struct Resumed {
  std::filesystem::path checkpoint;
  RunConfig config;  // of the resumed run: see Continuation
  RunPosition position;
  io::RunRecord run;                       // its id is empty if the run has none yet
  bool checkpoint_has_id = true;           // false: saved by DeepSpeed or an older mpzero
  std::vector<std::string> changes;        // for the user, one per line: see Continuation
  std::optional<std::string> recompute{};  // see Continuation
};
std::optional<Resumed> resume_run(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                  parallel::ZeroEngine& engine, ProcessGroup& group,
                                  std::vector<std::string>& warnings);

// Reads the required states of a checkpoint. Collective; throws Damaged on all ranks if they are damaged.
using ReadStates = std::function<void(const io::StoredCheckpoint&)>;

// resume_run() with another reader of the states. Makes all decisions, for a run and for its preview.
std::optional<Resumed> resume_with(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                   const ReadStates& read_states, WeightsCheck weights_check, ProcessGroup& group,
                                   std::vector<std::string>& warnings);

}  // namespace mpzero
