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

// The end of a sentence if the user may start a new run instead. In a task of a job array, suggests a folder for each
// task. Suggests --overwrite unless it would move the weights of --init_from.
std::string start_new_run(const RunConfig& config);

// The checkpoints that a run may resume from, best first, as rank 0 found them.
struct ResumeChoices {
  std::vector<std::filesystem::path> folders;
  io::RunRecord run;           // see io::ResumeCandidates
  std::string problem;         // see io::ResumeCandidates::problem_of_latest
  std::string left_out;        // part of a sentence; empty: none
  std::string problem_of_run;  // see io::ResumeCandidates
};

// The checkpoints of --resume_from_checkpoint, or of the checkpoint folder. Throws UserError if the run is ambiguous,
// or with --resume_strict if `latest` refers to no good checkpoint. Collective.
ResumeChoices choose_checkpoints(const RunConfig& config, ProcessGroup& group);

// Removes the remedy from a sentence about a checkpoint, for problems that the run solves itself.
std::string without_remedy(std::string text);

}  // namespace mpzero
