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

// Restores the engine from the checkpoint that --resume_from_checkpoint selects or, by default, from the newest
// complete checkpoint in --checkpoint_dir. Each rank reads its own shard. Returns std::nullopt if there is no
// checkpoint. Warns about each changed setting that may be unintended. Collective. If any rank fails, throws on all
// ranks.
//
// Skips a damaged or unfinished checkpoint with a warning and tries the next older checkpoint of the same run
// (io::ResumeCandidates). Throws instead if --resume_strict is set or no other checkpoint remains. Other read errors
// (system errors, newer formats) are thrown, since the checkpoint may be intact. Throws UserError if the run started
// from different weights, or if check_resumable() or check_unfinished() rejects the checkpoint.
struct Resumed {
  std::filesystem::path checkpoint;
  RunConfig config;  // see Continuation
  RunPosition position;
  io::RunRecord run;                       // the id is empty if the run has no id yet
  bool checkpoint_has_id = true;           // false: saved by DeepSpeed or an older mpzero version
  std::vector<std::string> changes;        // log lines: see Continuation
  std::optional<std::string> recompute{};  // see Continuation
};
std::optional<Resumed> resume_run(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                  parallel::ZeroEngine& engine, ProcessGroup& group,
                                  std::vector<std::string>& warnings);

// Reads a checkpoint's states. Collective. Throws Damaged on all ranks if a state is damaged.
using ReadStates = std::function<void(const io::StoredCheckpoint&)>;

// Implements resume_run() and preview_resume(), which pass different `read_states`.
std::optional<Resumed> resume_with(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                   const ReadStates& read_states, WeightsCheck weights_check, ProcessGroup& group,
                                   std::vector<std::string>& warnings);

}  // namespace mpzero
