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

// Returns a clause that suggests starting a new run, to append to an error message. In a Slurm job array, suggests one
// checkpoint folder per task. Suggests --overwrite unless that would move the weights of --init_from.
std::string start_new_run(const RunConfig& config);

// The checkpoints that a run may resume from, in order of preference, identical on all ranks.
struct ResumeChoices {
  std::vector<std::filesystem::path> folders;
  io::RunRecord run;           // see io::ResumeCandidates
  std::string problem;         // see io::ResumeCandidates::problem_of_latest
  std::string left_out;        // "not tried: ..."; empty: all checkpoints are candidates
  std::string problem_of_run;  // see io::ResumeCandidates
};

// Finds the checkpoints in --resume_from_checkpoint or, by default, in --checkpoint_dir. Throws UserError if the run to
// resume is ambiguous, or if --resume_strict is set and `latest` is invalid. Collective.
ResumeChoices choose_checkpoints(const RunConfig& config, ProcessGroup& group);

// Removes the suggested remedy from an error message about a checkpoint, for use in a warning.
std::string without_remedy(std::string text);

}  // namespace mpzero
