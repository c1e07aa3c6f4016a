#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/checkpoint/run_state.hpp"
#include "app/config/run_config.hpp"
#include "base/process_group.hpp"
#include "io/checkpoint/run_record.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"

namespace mpzero {

// The end of a sentence where nothing else keeps the run from starting anew. In a task of a job array it names a folder
// for each task. --overwrite is named unless it would move the weights of --init_from.
std::string start_new_run(const RunConfig& config);

// The checkpoints that a run may resume from, best first, as rank 0 found them.
struct ResumeChoices {
  std::vector<std::filesystem::path> folders;
  io::RunRecord run;           // see io::ResumeCandidates
  std::string problem;         // likewise: problem_of_latest
  std::string left_out;        // a sentence's part; empty: nothing is
  std::string problem_of_run;  // see io::ResumeCandidates
};

// Those of --resume_from_checkpoint, or of the checkpoint folder. Throws UserError where more than one run may be
// meant, and with --resume_strict where `latest` names no good one. Collective.
ResumeChoices choose_checkpoints(const RunConfig& config, ProcessGroup& group);

// A sentence about a checkpoint without what a user would have to do about it, where the run does it itself.
std::string without_remedy(std::string text);

}  // namespace mpzero
