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

// Fills the engine from the checkpoint that the run shall go on from: the one that --resume_from_checkpoint names, or
// the newest good one in its folder or in the checkpoint folder. One that turns out damaged or unfinished is named in
// `warnings`, and the next older one is taken; with --resume_strict, or if none is left, that throws. One that cannot
// be read for another reason (a system error, a newer format) throws: it may be whole, and the newest. Returns nothing
// where there is no checkpoint. Collective: an error on one rank is thrown on all. Each rank reads its own shard. Adds
// to `warnings` what the user may not have meant.
//
// Only checkpoints of one run are tried: see io::ResumeCandidates. A run of other weights, or one that check_resumable
// or check_unfinished refuses, throws UserError.
struct Resumed {
  std::filesystem::path checkpoint;
  RunConfig config;  // as the run continues: see Continuation
  RunPosition position;
  io::RunRecord run;                       // its id is empty where the run has none yet
  bool checkpoint_has_id = true;           // false: saved by DeepSpeed or an older mpzero
  std::vector<std::string> changes;        // for the user, a line each: see Continuation
  std::optional<std::string> recompute{};  // see Continuation
};
std::optional<Resumed> resume_run(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                  parallel::ZeroEngine& engine, ProcessGroup& group,
                                  std::vector<std::string>& warnings);

// Reads what is wanted of a checkpoint's states. Collective; throws Damaged, on all ranks, where they are damaged.
using ReadStates = std::function<void(const io::StoredCheckpoint&)>;

// resume_run() with another reader of the states. All decisions are made here, for a run as for the preview of one.
std::optional<Resumed> resume_with(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                   const ReadStates& read_states, WeightsCheck weights_check, ProcessGroup& group,
                                   std::vector<std::string>& warnings);

}  // namespace mpzero
